"""Every finding has words."""

import pytest

from rollout.model import blocker_finding, drain_finding, finding, warning_finding
from rollout.model.blocker_finding import AwayByOthers, BlockerFinding, NodeAway
from rollout.model.drain_finding import PodFinding
from rollout.model.finding import Finding, NodeFinding, ProbeFailed, StartFinding
from rollout.model.warning_finding import WarningFinding
from rollout.wording.words import words

BASES = {
    *(Finding, NodeFinding, ProbeFailed, StartFinding, BlockerFinding, NodeAway, AwayByOthers),
    *(PodFinding, WarningFinding),
}
MODULES = (finding, blocker_finding, drain_finding, warning_finding)
CLASSES = [value for module in MODULES for value in vars(module).values()]
KINDS = [kind for kind in CLASSES if isinstance(kind, type) and issubclass(kind, Finding)]


@pytest.mark.parametrize("kind", sorted(set(KINDS) - BASES, key=str))
def test_every_kind_of_finding_has_words(kind: type[Finding]) -> None:
    assert words.dispatch(kind) is not words.dispatch(Finding)
