"""No decision reads a sentence: with every one replaced by a placeholder, all decisions stay the
same.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.cli.stages.operate_pass import Pass
from rollout.errors import ExitCode
from rollout.execution.base.deadline import Deadline, GracefulStop
from rollout.execution.base.gate_ports import GatePorts
from rollout.execution.node.failures import NodeFailure, WithheldError, outcome_of
from rollout.execution.rollout.ledger import Ledger
from rollout.model.finding import (
    AlertsFiring,
    AllNodesPaused,
    FailureLimit,
    Finding,
    GateTimeout,
    HeldVersion,
    NodeFinding,
    NoWindowAhead,
    OwnNodeDeferred,
    RebootNotNeeded,
    StopRequested,
    Unsettled,
    WaveNotConfirmed,
    WindowClosed,
    held_version,
)
from rollout.model.gates import AlertPolicy, GatePolicy, WindowPolicy
from rollout.model.memory import Memory, Pause, VersionFailures
from rollout.model.plan import ExclusionReason
from rollout.model.progress import NodeResult, Outcome, Phase, RunFinished, RunResult
from rollout.model.quantity import Duration
from rollout.planning.plan.build import build_plan
from rollout.report.notifications import NoteMaker
from rollout.report.summary import summary_text
from rollout.wording import words
from rollout.wording.words import Words
from tests.execution.simulated import World
from tests.execution.test_gates import Alerts, MovedClock, gates_of, plan_with
from tests.planning.builders import NOW, inputs, node

PLACEHOLDER = "…"
HELD = HeldVersion("4152.2.0", ("worker-9",), "2026-11-23T01:00:00Z")
MINUTE = Duration(60)


@pytest.fixture
def wordless(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what replaces the words of every finding."""

    def replace_words() -> None:
        monkeypatch.setattr(words, "words", lambda _finding: Words(PLACEHOLDER, PLACEHOLDER))

    return replace_words


def is_same(decide: Callable[[], object], wordless: Callable[[], None]) -> bool:
    with_words = decide()
    wordless()
    return decide() == with_words


def result_with(finding: Finding) -> RunResult:
    """Return the end of a run that did not start a node because of this finding."""
    ledger = Ledger()
    ledger.add_not_started([node_planned()], finding)
    return RunResult((), not_started=tuple(ledger.not_started))


def node_planned() -> Any:
    return build_plan(inputs([node("worker-1")])).nodes[0]


REASONS: Sequence[tuple[Finding, ExitCode, str]] = (
    (WindowClosed((), "Mon"), ExitCode.OK, "interrupted"),
    (NoWindowAhead(()), ExitCode.PARTIAL, "failed"),
    (AllNodesPaused(Pause("ada")), ExitCode.OK, "interrupted"),
    (GateTimeout(AlertsFiring(("Disk",)), MINUTE), ExitCode.OK, "interrupted"),
    (HELD, ExitCode.PARTIAL, "failed"),
    (WaveNotConfirmed(1), ExitCode.PARTIAL, "failed"),
    (FailureLimit(1, 1), ExitCode.PARTIAL, "failed"),
    (StopRequested(), ExitCode.PARTIAL, "failed"),
    (Unsettled(MINUTE, "shop/cart", wave=1), ExitCode.PARTIAL, "failed"),
)


@pytest.mark.parametrize(("finding", "code", "state"), REASONS)
def test_a_pass_ends_with_the_same_exit_code(
    wordless: Callable[[], None], finding: Finding, code: ExitCode, state: str
) -> None:
    wordless()
    operation = cast("Pass", SimpleNamespace(stop=GracefulStop()))
    assert Pass._exit_code(operation, result_with(finding)) is code


@pytest.mark.parametrize(("finding", "code", "state"), REASONS)
def test_a_pass_notifies_of_the_same_state(
    wordless: Callable[[], None], finding: Finding, code: ExitCode, state: str
) -> None:
    wordless()
    plan = build_plan(inputs([node("worker-1")]))
    observer = NoteMaker(plan, "", 600.0, unattended=True)
    (note,) = observer.notes_of(RunFinished(NOW, result_with(finding)))
    assert note.state == state


def holds() -> list[tuple[bool, bool, str]]:
    """What each gate decides about a node: whether waiting helps, whether it passes, and its kind."""
    clock = MovedClock()
    window = WindowPolicy(("mon 22:00 1h",))
    closed, _ = gates_of(plan_with(GatePolicy(windows=window)), clock, GatePorts())
    waiting = WindowPolicy(("mon 22:00 1h",), wait=True)
    waits, _ = gates_of(plan_with(GatePolicy(windows=waiting)), clock, GatePorts())
    late, _ = gates_of(plan_with(GatePolicy()), clock, GatePorts(deadline=Deadline(clock, 1.0)))
    alerts = GatePolicy(alerts=AlertPolicy("http://127.0.0.1:9"), timeout=MINUTE)
    firing, _ = gates_of(plan_with(alerts), clock, GatePorts(alerts=Alerts(("Disk",))))
    unasked, _ = gates_of(plan_with(alerts), clock, GatePorts())
    decisions = []
    for gates in (closed, waits, late, firing, unasked):
        hold = gates.ask(gates.plan.nodes[0])
        assert hold.finding
        decisions.append((hold.is_final, hold.finding.is_for_later, str(hold.finding.kind)))
    return decisions


def test_gates_decide_the_same(wordless: Callable[[], None]) -> None:
    assert is_same(holds, wordless)


def journeys() -> list[tuple[list[str], list[tuple[str, str]]]]:
    """Which nodes start in a wave, and why the others do not."""
    seconds = {"node-1": 1.0, "node-2": 1.0, "node-3": 1.0}
    lost = World(seconds, outcomes={"node-1": Outcome.FENCED})
    failed = World(seconds, outcomes={"node-1": Outcome.DRAIN_FAILED})
    stopped = World(seconds, idle=lambda world: world.stop.request())
    decisions = []
    for world in (lost, failed, stopped):
        world.run(limit=1, failures=1)
        left = [(entry.node, entry.kind) for entry in world.ledger.not_started]
        decisions.append(([*world.begun], left))
    return decisions


def test_waves_start_the_same_nodes(wordless: Callable[[], None]) -> None:
    assert is_same(journeys, wordless)


def exclusions() -> list[tuple[str, str, str]]:
    nodes = [node("worker-1"), node("worker-2", unschedulable=True)]
    given = inputs(nodes)
    memory = Memory(versions={"4152.2.0": VersionFailures(("worker-9",), "2026-01-01", "2026")})
    plan = build_plan(replace(given, snapshot=replace(given.snapshot, memory=memory)))
    return [(left.node, left.reason, left.version) for left in plan.excluded]


def test_a_plan_leaves_the_same_nodes_out(wordless: Callable[[], None]) -> None:
    assert is_same(exclusions, wordless)


def test_the_ending_names_the_held_version(wordless: Callable[[], None]) -> None:
    wordless()
    ledger = Ledger()
    ledger.add(
        NodeResult(
            "worker-1",
            Outcome.SKIPPED,
            Phase.PENDING,
            0.0,
            PLACEHOLDER,
            reason=HELD.kind,
            finding=HELD,
        )
    )
    text = summary_text(RunResult((), skipped=tuple(ledger.skipped)), took=1.0, width=None)
    assert "rollout release 4152.2.0" in text


@pytest.mark.parametrize(
    "finding",
    [HELD, OwnNodeDeferred("ops/rollout-1"), RebootNotNeeded(("idle",)), FailureLimit(1, 1)],
)
def test_a_failure_is_judged_by_its_finding(wordless: Callable[[], None], finding: Finding) -> None:
    wordless()
    failure = NodeFailure(Outcome.SKIPPED, finding=finding)
    assert failure.message == f"{PLACEHOLDER} ({PLACEHOLDER})"
    assert outcome_of(failure) is Outcome.SKIPPED
    assert failure.reason == (finding.kind if isinstance(finding, NodeFinding) else None)


def test_a_withheld_reboot_keeps_the_held_version(wordless: Callable[[], None]) -> None:
    wordless()
    failure = WithheldError(finding=HELD)
    assert held_version(failure.finding) == "4152.2.0"
    assert failure.reason is ExclusionReason.VERSION_HELD
