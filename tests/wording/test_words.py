"""Every finding has words."""

from rollout.model import finding
from rollout.model.finding import Finding, NodeFinding, ProbeFailed, StartFinding
from rollout.wording.words import words

BASES = {Finding, NodeFinding, ProbeFailed, StartFinding}


def test_every_kind_of_finding_has_words() -> None:
    classes = (value for value in vars(finding).values() if isinstance(value, type))
    kinds = {kind for kind in classes if issubclass(kind, Finding)} - BASES
    wordless = {kind for kind in kinds if words.dispatch(kind) is words.dispatch(Finding)}
    assert not wordless
