"""What a host's source says after the reboot, as a proof of it."""

from dataclasses import replace

import pytest

from rollout.execution.node.failures import blamed
from rollout.execution.node.proof import unmet
from rollout.model.detection import Answer, Sign, Source
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome


def ostree(current: str, answer: Answer = Answer.NOT_NEEDED) -> Sign:
    return Sign(Source.RPM_OSTREE, answer, "rpm-ostree did not answer", current=current)


@pytest.mark.parametrize(
    ("sign", "why", "is_final"),
    [
        (ostree("b" * 64), "", True),
        # the next update may be staged already
        (ostree("b" * 64, Answer.NEEDED), "", True),
        (ostree("a" * 64), "deployment aaaaaaaaaaaa is booted, not bbbbbbbbbbbb", True),
        (ostree("", Answer.NONE), "rpm-ostree did not answer", False),
        (Sign(Source.REBOOT_REQUIRED, Answer.NOT_NEEDED), "", True),
        # /run is new with each boot: what is there now was put there by this one
        (Sign(Source.REBOOT_REQUIRED, Answer.NEEDED, "the file"), "still the file", True),
        (Sign(Source.REBOOT_REQUIRED, Answer.NONE, "not known"), "not known", False),
        (Sign(Source.COMMAND, Answer.NOT_NEEDED), "", True),
        (Sign(Source.COMMAND, Answer.NEEDED, "exited with 0"), "still exited with 0", False),
        (Sign(Source.COMMAND, Answer.NONE, "did not run"), "did not run", False),
    ],
)
def test_a_sign_after_the_reboot(sign: Sign, why: str, *, is_final: bool) -> None:
    missing, final = unmet(sign, "b" * 64)
    assert (missing, final or not why) == (why, is_final)


def test_a_version_that_runs_is_not_held_for_what_else_was_not_proven() -> None:
    planned = PlannedNode("w-1", "b", "u", "1.0", "2.0", 0, 0)
    assert blamed(planned, Outcome.ROLLED_BACK, "1.0", is_refused=False) == planned
    assert blamed(planned, Outcome.NOT_READY, "2.0", is_refused=False) == planned
    assert blamed(planned, Outcome.ROLLED_BACK, "2.0", is_refused=False) == replace(planned, staged_version="")
