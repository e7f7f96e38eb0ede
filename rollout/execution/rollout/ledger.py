from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from rollout.execution.record.record import Health
from rollout.model.finding import Finding, LockLost, NodeMarkedByOther
from rollout.model.plan import PlannedNode
from rollout.model.progress import NodeResult, NotDone, NotStarted, Outcome
from rollout.wording import text


@dataclass(slots=True)
class Ledger:
    """The results of this process's nodes, and what counts of an earlier process's.

        finished     succeeded or failed
        skipped      neither, and a resume decides anew whether its plan has the node
        not started  a resume starts the node, even if this process had begun and returned it

    A result is FENCED if this process must not act any more.
    """

    finished: list[NodeResult] = field(default_factory=list)
    skipped: list[NotStarted] = field(default_factory=list)
    not_started: list[NotStarted] = field(default_factory=list)
    # Of an earlier process.
    cordoned_before: frozenset[str] = frozenset()
    failures_before: int = 0

    @property
    def failures(self) -> int:
        return self.failures_before + sum(1 for result in self.finished if not result.succeeded)

    @property
    def left_cordoned(self) -> frozenset[str]:
        left_cordoned_now = {result.node for result in self.finished if result.left_cordoned}
        return self.cordoned_before | left_cordoned_now

    @property
    def is_fenced(self) -> bool:
        return self.why_fenced is not None

    @property
    def why_fenced(self) -> LockLost | NodeMarkedByOther | None:
        marked_by_other: NodeMarkedByOther | None = None
        for result in self.finished:
            if result.outcome is not Outcome.FENCED:
                continue
            if not isinstance(result.finding, NodeMarkedByOther):
                # A lost lock, the graver reason, comes without this finding.
                return LockLost()
            marked_by_other = marked_by_other or result.finding
        return marked_by_other

    @property
    def is_complete(self) -> bool:
        """Whether a resume would find nothing to do; skipped nodes do not count."""
        if self.cordoned_before or self.not_started:
            return False
        return all(result.succeeded for result in self.finished)

    def has_entry_of(self, node: str) -> bool:
        names = [result.node for result in self.finished]
        names += [entry.node for entry in (*self.skipped, *self.not_started)]
        return node in names

    def add(self, result: NodeResult) -> None:
        is_aborted = result.outcome is Outcome.ABORTED
        # The plan of a resume might leave out a node with a reason.
        has_reason = result.reason is not None
        if is_aborted and not has_reason:
            # A stop or a closed window returned the node.
            aborted = NotStarted(
                node=result.node,
                message=result.message,
                phase=result.phase,
                left_cordoned=result.left_cordoned,
            )
            self.not_started.append(aborted)
        elif is_aborted or result.outcome is Outcome.SKIPPED:
            skipped = NotStarted(
                node=result.node,
                message=result.message,
                reason=result.reason,
                phase=result.phase,
                finding=result.finding,
            )
            self.skipped.append(skipped)
        else:
            self.finished.append(result)

    def add_not_started(self, nodes: Sequence[PlannedNode], why: Finding) -> None:
        message = text(why)
        self.not_started.extend(NotStarted(node.name, message, finding=why) for node in nodes)


class Inheritance(Struct, frozen=True):
    # Run IDs in the marks of nodes that this process continues.
    taken_up: Mapping[str, str] = {}
    left_cordoned: frozenset[str] = frozenset()
    # Before the interrupted wave.
    health: Health | None = None
    failures: int = 0
    failed: tuple[NotDone, ...] = ()
    # Of started nodes that cannot be continued.
    stranded: tuple[NodeResult, ...] = ()
    retried: frozenset[str] = frozenset()
    # Nodes never started, and left out by the new plan.
    left_over: tuple[str, ...] = ()
    # Why only nodes in flight are finished, or None.
    why_none_starts: Finding | None = None


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
    node: str
    evictions: int
    objections: tuple[str, ...]
