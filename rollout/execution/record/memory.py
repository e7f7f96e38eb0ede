"""The memory that outlives a rollout: failed nodes, held versions and pauses.

A change counts in this process even if its write fails; the next write repeats it.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from rollout.errors import (
    ApiError,
    ApiUnavailableError,
    BlockedError,
    FencedError,
)
from rollout.execution.base.deadline import Guard, PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.record.compare_and_swap import rewrite
from rollout.gather.cluster.documents import (
    memory_document,
    read_memory,
    read_stored_memory,
)
from rollout.model.finding import Finding, HeldVersion, MemoryUnreadable, MemoryUnwritable
from rollout.model.memory import NO_MEMORY, Memory
from rollout.model.plan import PlannedNode
from rollout.model.progress import VersionHeld
from rollout.planning.eligibility.evidence import ProvenVersions
from rollout.planning.eligibility.judgement import EligibilityInputs, why_not_bootable
from rollout.planning.eligibility.memory import (
    EndedNode,
    NodeEnd,
    why_all_paused,
    why_held,
    with_hold,
    with_node_end,
)
from rollout.ports import ClusterApi
from rollout.wording import cause_of

Change = Callable[[Memory], Memory]

_FRESH_SECONDS = 1.0
_WRITE_SECONDS = 30.0


def change_memory(
    api: ClusterApi, namespace: str, change: Change, *, replace_unreadable: bool = False
) -> Memory:
    def change_readable(memory: Memory) -> Memory:
        if not memory.why_unreadable:
            return change(memory)
        if not replace_unreadable:
            raise ApiError(f"{memory.why_unreadable}: it is left unchanged")
        return change(NO_MEMORY)

    return rewrite(api, memory_document(namespace), read_stored_memory, change_readable)


def require_readable_memory(memory: Memory) -> None:
    if memory.why_unreadable:
        raise BlockedError(
            f"{memory.why_unreadable}. rollout cannot tell which versions are held, or whether"
            " nodes are paused",
            hint=memory.fix,
        )


def why_unwritable(api: ClusterApi, namespace: str) -> ApiError | None:
    """Return why a dry run fails; raises `ApiUnavailableError` in an outage."""
    try:
        memory = read_stored_memory(api, namespace).content
    except ApiUnavailableError:
        raise
    except ApiError as error:
        return error
    if memory.why_unreadable:
        return ApiError(memory.why_unreadable)
    return memory_document(namespace).why_unwritable(api)


@dataclass
class _EndNote:
    ended: EndedNode
    now: datetime
    # Someone may have released the version meanwhile.
    was_held: bool = False

    def __call__(self, memory: Memory) -> Memory:
        self.was_held = why_held(memory, self.ended.version) is not None
        return with_node_end(memory, self.ended, self.now)


@dataclass
class RunMemory:
    """The memory as one rollout reads and writes it, from many threads.

    A version is held after it has failed on too many nodes, or because someone holds it: nodes that
    would boot it do not start.
    """

    cluster: PatientApi
    check_may_act: Guard
    report: Reporter
    run_id: str
    namespace: str
    failure_limit: int
    # Start nodes despite held versions, as retried nodes always do.
    include_held: bool
    retried: frozenset[str] = frozenset()
    # Start nodes only while the memory is writable.
    unattended: bool = False
    # None if no proof is needed.
    proven: ProvenVersions | None = None
    newly_held: tuple[str, ...] = ()
    _mutex: threading.Lock = field(default_factory=threading.Lock)
    _pending: list[Change] = field(default_factory=list)
    # The memory with the changes whose write has failed.
    _seen: Memory = NO_MEMORY
    _seen_at: float = float("-inf")
    _needs_fresh_read: bool = False
    _warned: set[str] = field(default_factory=set)
    _unreported: dict[str, HeldVersion] = field(default_factory=dict)
    _unwritable: MemoryUnwritable | None = None
    _is_unwritable_known: bool = False

    def require_fresh_read(self) -> None:
        with self._mutex:
            self._needs_fresh_read = True

    def why_not_to_start(self, planned: PlannedNode) -> Finding | None:
        unreadable = self._why_unreadable()
        if unreadable:
            return unreadable
        all_paused = why_all_paused(self._read_recent(), self.cluster.api.server_time())
        return all_paused or self._why_unwritable() or self._why_held(planned)

    def _why_unreadable(self) -> MemoryUnreadable | None:
        why = self._read_recent().why_unreadable
        return MemoryUnreadable(why) if why else None

    def _why_held(self, planned: PlannedNode) -> Finding | None:
        if self._may_start_though_held(planned.name):
            return None
        return why_held(self._read_recent(), planned.staged_version, self.failure_limit)

    def objection_to_version(self, planned: PlannedNode, version: str | None) -> Finding | None:
        """`version` is None if unknown."""
        self.require_fresh_read()
        unreadable = self._why_unreadable()
        if unreadable:
            return unreadable
        inputs = EligibilityInputs(
            memory=self._read_recent(),
            failure_limit=self.failure_limit,
            include_held=self.include_held,
            retried=self.retried,
            proven=self.proven,
        )
        return why_not_bootable(planned.name, planned.running_version, version, inputs)

    def held_among(self, nodes: Iterable[PlannedNode]) -> tuple[str, ...]:
        with self._mutex:
            memory = self._seen
        held_versions: list[str] = []
        for node in nodes:
            version = node.staged_version
            is_held = why_held(memory, version, self.failure_limit) is not None
            waits_for_it = is_held and not self._may_start_though_held(node.name)
            if waits_for_it and version not in held_versions:
                held_versions.append(version)
        return tuple(held_versions)

    def end_abort_pause(self) -> None:
        with self._mutex:
            if self._read().aborted is not None:
                self._pending.append(partial(replace, aborted=None))
                self._write()

    def hold(self, version: str, by: str) -> None:
        """Hold a version before anything starts."""
        change = partial(with_hold, version=version, by=by, now=self._now)
        self.check_may_act()
        memory = self.cluster.ask(lambda api: change_memory(api, self.namespace, change))
        self.require_fresh_read()
        why_held_now = why_held(memory, version)
        if why_held_now:
            self.report.tell(VersionHeld(self.report.now, version, (), cause_of(why_held_now)))

    def note_end(self, planned: PlannedNode, end: NodeEnd) -> None:
        version = planned.staged_version
        ended = EndedNode(
            node=planned.name,
            version=version,
            end=end,
            run_id=self.run_id,
            failure_limit=self.failure_limit,
            despite_hold=self._may_start_though_held(planned.name),
        )
        note = _EndNote(ended, self._now)
        with self._mutex:
            has_been_read = self._seen_at > float("-inf")
            if has_been_read and note(self._seen) == self._seen:
                return
            self._pending.append(note)
            self._write()
            why_held_now = why_held(self._seen, version)
            if isinstance(why_held_now, HeldVersion) and not note.was_held:
                self._unreported[version] = why_held_now

    def _may_start_though_held(self, node: str) -> bool:
        return self.include_held or node in self.retried

    def report_held(self) -> None:
        with self._mutex:
            unreported = self._unreported
            self._unreported = {}
            # A version that someone has released may be held a second time.
            self.newly_held = tuple(dict.fromkeys((*self.newly_held, *unreported)))
        for version, finding in unreported.items():
            message = f"{cause_of(finding)}. Nodes that have it staged are left out"
            self.report.tell(VersionHeld(self.report.now, version, finding.nodes, message))

    @property
    def _now(self) -> datetime:
        return self.cluster.api.server_time() or self.cluster.clock.now()

    def _with_pending_changes(self, memory: Memory) -> Memory:
        for change in self._pending:
            memory = change(memory)
        return memory

    def _why_unwritable(self) -> MemoryUnwritable | None:
        """An unattended run must be able to remember failures."""
        if not self.unattended:
            return None
        with self._mutex:
            if not self._is_unwritable_known:
                error = self.cluster.ask(lambda api: why_unwritable(api, self.namespace))
                self._unwritable = MemoryUnwritable(error.message) if error else None
                self._is_unwritable_known = True
            return self._unwritable

    def _read_recent(self) -> Memory:
        with self._mutex:
            return self._read()

    def _read(self) -> Memory:
        """The mutex must be held. Reads at most once a second by default."""
        now = self.cluster.clock.monotonic()
        is_fresh = now - self._seen_at < _FRESH_SECONDS
        if is_fresh and not self._needs_fresh_read:
            return self._seen
        self._needs_fresh_read = False
        try:
            memory = self.cluster.ask(lambda api: read_memory(api, self.namespace))
        except ApiError as error:
            self._warn(f"cannot read the failure history: {error.message}")
        else:
            self._seen = self._with_pending_changes(memory)
            if memory.why_unreadable:
                self._warn(f"{memory.why_unreadable}: rollout takes on no more nodes")
        self._seen_at = now
        return self._seen

    def _write(self) -> None:
        try:
            self.check_may_act()
            deadline = self.cluster.deadline_within(_WRITE_SECONDS)
            self._seen = self.cluster.ask(self._rewrite, deadline)
        except FencedError:
            # Another process may write now.
            return
        except ApiError as error:
            self._warn(f"cannot write the failure history: {error.message}")
            self._seen = self._with_pending_changes(self._seen)
        else:
            self._pending.clear()

    def _rewrite(self, api: ClusterApi) -> Memory:
        self.check_may_act()
        return change_memory(api, self.namespace, self._with_pending_changes)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            self.report.notice(f"warning: {message}")
