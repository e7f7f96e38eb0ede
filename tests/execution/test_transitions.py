"""The transition table: which moves there are, and that no other is followed."""

import pytest

from rollout.execution.node.context import Progress
from rollout.execution.node.failures import may_be_returned
from rollout.execution.node.transitions import AFTER_REBOOT, BEFORE_REBOOT, TABLE, TAKEN_UP, follow
from rollout.model.progress import Edge, Outcome, Phase

MOVES = [(phase, edge) for phase in Phase for edge in Edge]


def test_every_phase_is_in_the_table() -> None:
    assert TABLE.keys() == set(Phase)


def test_every_edge_is_in_the_table() -> None:
    assert {edge for edges in TABLE.values() for edge in edges} == set(Edge)


@pytest.mark.parametrize(
    ("phase", "edge"), [(phase, edge) for phase, edge in MOVES if edge not in TABLE[phase]]
)
def test_an_edge_that_does_not_start_at_the_phase_raises(phase: Phase, edge: Edge) -> None:
    with pytest.raises(AssertionError):
        follow(phase, edge)


@pytest.mark.parametrize(
    ("phase", "edge"), [(phase, edge) for phase, edge in MOVES if edge in TABLE[phase]]
)
def test_a_move_leads_where_the_table_says(phase: Phase, edge: Edge) -> None:
    moved = Progress(phase=phase).move(edge)
    assert moved.phase is TABLE[phase][edge]
    assert moved.edge is edge


def test_a_whole_run_goes_through_every_phase_but_failed() -> None:
    progress = Progress()
    phases = [progress.phase]
    for edge in (
        Edge.CORDONED,
        Edge.DRAIN_STARTED,
        Edge.EVICTED,
        Edge.REBOOT_REQUESTED,
        Edge.BOOTED,
        Edge.READY,
        Edge.PROVEN,
    ):
        progress = progress.move(edge)
        phases.append(progress.phase)
    assert phases == [phase for phase in Phase if phase is not Phase.FAILED]


def sources(target: Phase) -> set[Edge]:
    return {edge for edges in TABLE.values() for edge, end in edges.items() if end is target}


def test_only_proof_makes_a_node_done() -> None:
    assert sources(Phase.DONE) == {Edge.PROVEN}


def test_only_a_drained_node_is_asked_to_reboot() -> None:
    assert [phase for phase in Phase if Edge.REBOOT_REQUESTED in TABLE[phase]] == [Phase.DRAINED]


def test_a_done_node_moves_no_more() -> None:
    assert not TABLE[Phase.DONE]


@pytest.mark.parametrize("phase", sorted(AFTER_REBOOT))
def test_a_node_that_was_taken_up_after_its_reboot_is_proven_from_the_start(phase: Phase) -> None:
    assert TABLE[phase][Edge.TAKEN_UP] is Phase.REBOOTING


@pytest.mark.parametrize("phase", sorted(BEFORE_REBOOT - {Phase.PENDING}))
def test_a_node_that_was_taken_up_before_its_reboot_is_drained_again(phase: Phase) -> None:
    assert TABLE[phase][Edge.TAKEN_UP] is Phase.CORDONED


@pytest.mark.parametrize("edge", sorted(TAKEN_UP))
def test_no_node_is_taken_up_at_a_later_phase_than_its_reboot(edge: Edge) -> None:
    targets = {edges[edge] for edges in TABLE.values() if edge in edges}
    assert targets <= {Phase.PENDING, Phase.CORDONED, Phase.REBOOTING}


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_failure])
@pytest.mark.parametrize("phase", sorted(BEFORE_REBOOT | AFTER_REBOOT))
def test_each_end_of_a_node_has_its_edge(outcome: Outcome, phase: Phase) -> None:
    """But for a node that is fenced, which is left as it is."""
    if outcome is Outcome.FENCED:
        return
    edge = Edge.RETURNED if may_be_returned(outcome, phase) else Edge.FAILED
    assert edge in TABLE[phase]
