"""Results of a rollout: of this process, of an earlier one, of an abort and of a rehearsal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from rollout.execution.record.record import Health
from rollout.model.finding import Finding, LockLost, NodeMarkedByOther
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, NotDone, NotStarted, Outcome, Phase
from rollout.wording import text


@dataclass(slots=True)
class Ledger:
    finished: list[NodeResult] = field(default_factory=list)
    skipped: list[NotStarted] = field(default_factory=list)
    # A resume starts these.
    not_started: list[NotStarted] = field(default_factory=list)
    cordoned_before: frozenset[str] = frozenset()
    failures_before: int = 0

    @property
    def failures(self) -> int:
        return self.failures_before + sum(1 for result in self.finished if not result.succeeded)

    @property
    def left_cordoned(self) -> frozenset[str]:
        """Failed nodes that stay cordoned use up the limit."""
        left_cordoned = {result.node for result in self.finished if result.left_cordoned}
        return self.cordoned_before | left_cordoned

    @property
    def is_fenced(self) -> bool:
        return self.why_fenced is not None

    @property
    def why_fenced(self) -> LockLost | NodeMarkedByOther | None:
        """Return why this process must not act any more, or None."""
        fenced = [result for result in self.finished if result.outcome is Outcome.FENCED]
        marked = [
            result.finding for result in fenced if isinstance(result.finding, NodeMarkedByOther)
        ]
        if len(marked) < len(fenced):
            return LockLost()
        return marked[0] if marked else None

    @property
    def is_complete(self) -> bool:
        if self.cordoned_before or self.not_started:
            return False
        return all(result.succeeded for result in self.finished)

    def has_entry_of(self, node: str) -> bool:
        names = [result.node for result in self.finished]
        names += [entry.node for entry in (*self.skipped, *self.not_started)]
        return node in names

    def add(self, result: NodeResult) -> None:
        # A stop or a closed window returned the node. With a reason, plans would leave it out.
        may_start_again = result.outcome is Outcome.ABORTED and result.reason is None
        if may_start_again:
            self.not_started.append(NotStarted(result.node, result.message))
        elif result.outcome in (Outcome.SKIPPED, Outcome.ABORTED):
            skipped = NotStarted(
                node=result.node,
                message=result.message,
                reason=result.reason,
                was_begun=result.phase is not Phase.PENDING,
                finding=result.finding,
            )
            self.skipped.append(skipped)
        else:
            self.finished.append(result)

    def add_not_started(self, nodes: Sequence[PlannedNode], why: Finding) -> None:
        message = text(why)
        self.not_started.extend(NotStarted(node.name, message, finding=why) for node in nodes)


class Inheritance(Struct, frozen=True):
    """What an earlier process has left of this rollout."""

    # The run ID in the marks, by node.
    taken_up: Mapping[str, str] = {}
    left_cordoned: frozenset[str] = frozenset()
    # The health before the interrupted wave.
    health: Health | None = None
    failures: int = 0
    failed: tuple[NotDone, ...] = ()
    # Started, but cannot be continued.
    stranded: tuple[NodeResult, ...] = ()
    retried: frozenset[str] = frozenset()
    # The new plan leaves them out.
    left_over: tuple[str, ...] = ()
    # Why only nodes in flight are finished.
    blocked: Finding | None = None


class Aborted(Struct, frozen=True):
    run_id: str
    reverted: tuple[str, ...]
    # Why, by node.
    left_cordoned: Mapping[str, str]
    untainted: tuple[str, ...] = ()
    left_tainted: Mapping[str, str] = {}
    stopped: bool = False
    # Unattended passes start no more nodes.
    stops_passes: bool = False
    versions: Mapping[str, str] = {}


class Rehearsal(Struct, frozen=True):
    """How many evictions on a node the API server would allow, and its objections."""

    node: str
    evictions: int
    objections: tuple[str, ...]
