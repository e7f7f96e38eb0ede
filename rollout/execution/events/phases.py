"""A node's way through a rollout, or its undoing, as Kubernetes Events on the Node: what `kubectl describe node` shows.

Of a rollout it is an observer like any other: it hears of each node's phases and of its end, and has them written in
the background. An abort's words are those of a rollout: a node is `GivenBack` by whoever stopped it.
"""

from datetime import datetime
from types import TracebackType
from typing import Self

from rollout.errors import RolloutError
from rollout.execution.base.reporting import Reporter
from rollout.execution.events.writer import EventWriter, NodeNote
from rollout.model.plan import PlannedNode, RolloutPlan
from rollout.model.progress import NodeFinished, NodeResult, NodeStep, Outcome, Phase, StepEvent
from rollout.model.quantity import Duration
from rollout.model.text import version_step
from rollout.ports import ClusterApi

CLOSING_SECONDS = 3.0
# Fixed words: people filter by them. `pending` is nothing that happens to a node; the end has words of its own.
REASONS = {
    Phase.CORDONED: "Cordoned",
    Phase.DRAINING: "Draining",
    Phase.DRAINED: "Drained",
    Phase.REBOOTING: "Rebooting",
    Phase.BOOTED: "Booted",
    Phase.READY: "Ready",
}
ENDS = {Outcome.SUCCEEDED: "Done", Outcome.SKIPPED: "Skipped", Outcome.ABORTED: "GivenBack"}
FAILED = "RolloutFailed"


class PhaseEvents:
    """Tells the Nodes of one plan what happens to them. Enter it to begin, leave it to end.

    Drains have the same `writer`: what they told last has a moment to be written at the end of the run.
    """

    def __init__(self, api: ClusterApi, plan: RolloutPlan, report: Reporter) -> None:
        self._run = plan.plan_id
        self._planned = {node.name: node for node in plan.nodes}
        self._phases: dict[str, Phase] = {}
        self._report = report
        self.writer = EventWriter(api, self._run, report.clock, closing_seconds=CLOSING_SECONDS, refused=self._refused)

    def __enter__(self) -> Self:
        self.writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.__exit__(kind, error, trace)

    def notify(self, event: StepEvent) -> None:
        """Take one event; what is told of a node comes from its own thread."""
        match event:
            case NodeFinished() if event.node not in self._planned:
                return  # it was begun by another process, and this one does nothing to it
            case NodeStep() if self._phases.get(event.node) is not event.phase:
                self._phases[event.node] = event.phase
                if event.phase in REASONS:
                    self._tell(event.node, REASONS[event.phase], self._step(event), event.at)
            case NodeFinished():
                reason, warning = _end(event)
                self._tell(event.node, reason, self._ended(event), event.at, warning=warning)
            case _:
                return

    def _refused(self, error: RolloutError) -> None:
        self._report.notice(f"Events about this rollout cannot be written: {error.message}")

    def _tell(self, node: str, reason: str, message: str, at: datetime, *, warning: bool = False) -> None:
        about = f"{node}/{reason}"
        text = f"{message} (rollout {self._run})"
        self.writer.tell(NodeNote(node, self._planned[node].node_uid, about, reason, text, at, at, warning))

    def _step(self, event: NodeStep) -> str:
        return _sentence(event.phase, self._planned[event.node])

    def _ended(self, result: NodeFinished) -> str:
        node = self._planned[result.node]
        took = f"after {Duration(round(result.seconds))}"
        if result.succeeded:
            version = f", running {result.version}" if result.version else ""
            return f"{'Done' if node.cordoned else 'Uncordoned'} {took}{version}{_kept(node)}"
        if result.outcome is Outcome.SKIPPED:
            return f"Not touched: {result.message}"
        remark = "; it is left cordoned" if result.left_cordoned else ""
        return f"{result.outcome} in phase {result.phase} {took}: {result.message}{remark}"


def _end(result: NodeFinished) -> tuple[str, bool]:
    """Return the reason, and whether it is a warning."""
    return ENDS.get(result.outcome, FAILED), result.outcome not in ENDS


def _sentence(phase: Phase, node: PlannedNode) -> str:
    match phase:
        case Phase.CORDONED:
            return f"Cordoned, to be rebooted: {_versions(node)}{_kept(node)}"
        case Phase.DRAINING:
            return f"Evicting {node.evict} pod{'' if node.evict == 1 else 's'}"
        case Phase.DRAINED:
            return "All pods that had to leave are gone"
        case Phase.REBOOTING:
            return f"Asking the host to reboot: {_versions(node)}"
        case Phase.BOOTED:
            return "The host is up with a new boot id"
        case _:
            return "The kubelet of the new boot reports Ready"


def _versions(node: PlannedNode) -> str:
    if not node.staged:
        return f"{node.running_version or 'an unknown version'}, nothing staged"
    return version_step(node.running_version, node.staged_version, node.detected_by).replace("→", "->")


def _kept(node: PlannedNode) -> str:
    return "; it was cordoned before and stays cordoned" if node.cordoned else ""


def undone_events(api: ClusterApi, run: str, report: Reporter) -> EventWriter:
    """Return their writer, for the nodes of one run; that it cannot write is told once, and stops nothing."""

    def refused(error: RolloutError) -> None:
        report.notice(f"Events about this abort cannot be written: {error.message}")

    return EventWriter(api, run, report.clock, closing_seconds=CLOSING_SECONDS, refused=refused)


def undone_note(node: PlannedNode, result: NodeResult, run: str, at: datetime) -> NodeNote:
    """Return the Event of one node: of a node that is left as it is, a warning."""
    is_left = result.left_cordoned
    reason = FAILED if is_left else ENDS[Outcome.ABORTED]
    message = f"{_left(result) if is_left else _given_back(node, result)} (rollout {run})"
    return NodeNote(node.name, node.node_uid, f"{node.name}/{reason}", reason, message, at, at, warning=is_left)


def _left(result: NodeResult) -> str:
    return f"Not undone by rollout abort in phase {result.phase}: {result.message}; it was left as it is"


def _given_back(node: PlannedNode, result: NodeResult) -> str:
    cordon = "it was cordoned before, and stays so" if node.cordoned else "it is uncordoned"
    return f"Undone by rollout abort in phase {result.phase}; {cordon}"
