"""What resume and abort say that they are about to do, in a small fleet and in a large one."""

import pytest

from rollout.execution.lease import Glance
from rollout.execution.record.stored import StoredRecord
from rollout.execution.record.unfinished import Begun, Unfinished
from rollout.execution.rollout.ledger import Inheritance
from rollout.model.progress import Phase
from rollout.report.unfinished import abort_text, resume_text
from tests.report.builders import planned

NOBODY = Glance("")


def left_by(*counts: int) -> Unfinished:
    """So many nodes in each of two phases."""
    phases = (Phase.DRAINING, Phase.REBOOTING)
    begun = tuple(
        Begun(planned(f"{phase}-{number}"), phase, "this", cordoned=False)
        for phase, count in zip(phases, counts, strict=True)
        for number in range(count)
    )
    return Unfinished(StoredRecord("this", "", "", ended=False, plan=None), begun)


@pytest.mark.parametrize(("count", "lines"), [(1, 1), (5, 5), (6, 1), (600, 1)])
def test_many_nodes_of_which_the_same_is_said_have_one_line(count: int, lines: int) -> None:
    unfinished = left_by(1, count)
    for text in (abort_text(unfinished, NOBODY, wait=120), resume_text(unfinished, NOBODY, (), Inheritance())):
        assert sum("rebooting-" in line for line in text.splitlines()) == lines
        assert sum("draining-0: " in line for line in text.splitlines()) == 1
        assert (f"  {count} nodes, rebooting-0, rebooting-1, " in text) is (count > 5)
        assert ("and 595 more: rebooting" in text) is (count == 600)
