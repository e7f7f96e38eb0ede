"""How much of a budget the nodes of a wave may share."""

from rollout.planning.layout.sharing import Rate


def test_rounds_fit_in_their_time_with_the_handover_before_the_first() -> None:
    rate = Rate(permits=1, ending_seconds=10, seconds_per_round=25, handover_seconds=30)
    assert rate.rounds_within(89) == 2
    assert rate.rounds_within(90) == 3
    assert rate.drain_seconds(3) == 90
