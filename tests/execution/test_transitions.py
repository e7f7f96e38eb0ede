from itertools import pairwise

import pytest

from rollout.execution.node.transitions import NEXT, IllegalTransitionError, advance, is_final
from rollout.model.progress import Phase


def test_every_phase_is_in_the_table_and_can_end() -> None:
    assert set(NEXT) == set(Phase)
    for phase in Phase:
        assert is_final(phase) or Phase.FAILED in NEXT[phase]


def test_done_is_reached_only_through_every_proof() -> None:
    order = [Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED, Phase.REBOOTING]
    order += [Phase.BOOTED, Phase.READY, Phase.DONE]
    for current, following in pairwise(order):
        assert advance(current, following) is following


@pytest.mark.parametrize(
    ("current", "following"),
    [
        (Phase.PENDING, Phase.REBOOTING),
        (Phase.DRAINING, Phase.REBOOTING),
        (Phase.REBOOTING, Phase.DONE),
        (Phase.DONE, Phase.FAILED),
    ],
)
def test_what_is_not_in_the_table_raises(current: Phase, following: Phase) -> None:
    with pytest.raises(IllegalTransitionError, match=following):
        advance(current, following)
