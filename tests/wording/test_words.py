"""Every finding has words."""

import pytest

from rollout.model import blocker_finding, finding
from rollout.model.blocker_finding import BlockerFinding, NodeAway, PodRefused
from rollout.model.finding import Finding, NodeFinding, ProbeFailed, StartFinding
from rollout.wording.words import words

BASES = {Finding, NodeFinding, ProbeFailed, StartFinding, BlockerFinding, NodeAway, PodRefused}
CLASSES = [*vars(finding).values(), *vars(blocker_finding).values()]
KINDS = [kind for kind in CLASSES if isinstance(kind, type) and issubclass(kind, Finding)]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - BASES, key=str))
def test_every_kind_of_finding_has_words(kind: type[Finding]) -> None:
    assert words.dispatch(kind) is not words.dispatch(Finding)
