"""The steps of a node whose host asks by itself, and the access to such a host: none.

The phases and transitions are those of a rollout over SSH. What a rollout does over SSH, the host
does by itself, and its steps wait for it. The proof is what the kubelet reports: another boot ID of
the same machine, and Ready.

* drained: nothing is left on the node, and its volumes are detached or were waited for. The host may
  be granted its reboot.
* rebooting: the reboot is granted, as the replica that answered the host has written. The boot ID is
  watched.
* ready: the kubelet of the new boot reports Ready. The host's report of steady state is waited for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from rollout.errors import ApiError, ApiNotFoundError, DrainError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline
from rollout.execution.drain.drain import drain
from rollout.execution.node.claim import check_eligible, claim
from rollout.execution.node.context import NodeContext, Progress, at_version
from rollout.execution.node.failures import (
    GivenUpError,
    NodeFailure,
    NodeRemovedError,
    NotStartedError,
)
from rollout.execution.node.marking import mark_phase
from rollout.execution.node.reboot import RefilledError, last_look, look_again
from rollout.execution.node.rejoin import mark_again, ready_before_it
from rollout.execution.node.staged import check_version
from rollout.execution.node.steps import (
    Step,
    after_reboot,
    delay_reboot,
    drain_again,
    start_drain,
    succeed,
)
from rollout.gather.hosts.probe import BootFacts
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import Awaited, Slot, Slots
from rollout.model.host import Host
from rollout.model.plan import PlannedNode
from rollout.model.progress import Activity, Edge, Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.timestamps import parse_timestamp, timestamp
from rollout.ports import ClusterApi
from rollout.server.nodes import facts_of, node_of, staged_version_of, version_of
from rollout.server.reregistration import CREATED_AGAIN, IN_REBOOT, await_reregistration
from rollout.server.state import SlotBook

_PAUSE = 1.0
# How often a drained node is looked at for pods that came since, and how long that look may take.
_LOOK_EVERY = 5.0
_MOST_DRAINS = 3
# A host whose slot is taken away by hand may have been granted a moment ago: it is given this long
# to go down.
_SAFE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot whose node is taken through its run, and whose host asks by itself.

    What writes on the slot raises `ApiError`. `planned` is the node at the start of this run.
    """

    slot: Slot
    planned: PlannedNode
    api: ClusterApi
    book: SlotBook
    timeout: Duration

    @property
    def host(self) -> Host:
        return Host(self.slot.node, "")

    @property
    def error(self) -> None:
        """Nobody asks the host."""

    def boot_now(self) -> None:
        """Nobody asks the host."""

    def at_end(self, _planned: PlannedNode) -> PlannedNode | None:
        """Return the node with the version that it booted, which was the staged one.

        Of a host that is not back, the version is the one that FLUO's agent announced. None if the
        Node was deleted: another Node may have its name by now.
        """
        planned = self.planned
        try:
            node = node_of(self.api, self.now)
        except ApiError:
            return planned
        if node is None:
            return None
        if node.boot_id in ("", planned.boot_id) or node.machine_id != planned.machine_id:
            return replace(planned, staged_version=staged_version_of(node))
        version = version_of(node)
        return planned if version == self.slot.version else replace(planned, staged_version=version)

    @property
    def now(self) -> Slot:
        """The slot as it was seen last; as it was at first where it is gone, which its guard tells."""
        return self.book.latest.of_run(self.slot.run) or self.slot

    def close(self) -> None:
        """Give no grant any more."""
        self.book.change(lambda slots: slots.changed(self.slot.run, closing=True))

    def reopen(self) -> None:
        """Wait for its host after all, with a time of its own."""
        self.book.change(
            lambda slots: slots.changed(self.slot.run, closing=False, awaited=Awaited.NOTHING)
        )

    def waited(self, context: NodeContext, awaited: Awaited) -> float:
        """For how many seconds this has been waited for, whichever server began to; from now on where none has."""
        now = context.cluster.api.server_time() or context.cluster.clock.now()
        run = self.slot.run
        begun = partial(Slots.awaiting, run=run, awaited=awaited, at=timestamp(now))
        slot = context.cluster.ask(lambda _api: self.book.change(begun)).of_run(run)
        since = parse_timestamp(slot.awaited_since) if slot else None
        return max(0.0, (now - since).total_seconds()) if since else 0.0

    @property
    def steps(self) -> Mapping[Phase, Step]:
        """The steps of a node whose host asks by itself."""
        return {
            Phase.PENDING: _begin,
            Phase.CORDONED: start_drain,
            Phase.DRAINING: self._empty,
            Phase.DRAINED: partial(self._closing, self._await_grant),
            Phase.REBOOTING: partial(self._closing, self._await_boot),
            Phase.BOOTED: self._prove_ready,
            Phase.READY: self._finish,
        }

    def _empty(self, context: NodeContext, progress: Progress) -> Progress:
        """Drained is what may be granted: so the whole last look comes before that is written.

        A node that was drained before another server has taken it up waits for its host all the
        while.
        """
        is_first = self.now.awaited in (Awaited.NOTHING, Awaited.DRAIN)
        task = replace(context, spent=self.waited(context, Awaited.DRAIN) if is_first else 0.0)
        for attempt in range(_MOST_DRAINS):
            drain(task)
            if not (attempt or progress.drains):
                delay_reboot(context)
            try:
                last_look(task)
            except RefilledError:
                if attempt + 1 == _MOST_DRAINS:
                    raise
            else:
                break
        mark_phase(context, Phase.DRAINED)
        return progress.move(Edge.EVICTED)

    def _closing(self, wait: Step, context: NodeContext, progress: Progress) -> Progress:
        """Take a step during which a grant may be given: a node is given back only once none can be any more.

        The slot is closed, and the Node read after that: a grant that was written before stands,
        and is waited for.
        """
        try:
            return wait(context, progress)
        except FencedError:
            raise
        except RolloutError as error:
            self.close()
            node = self._looked_at(context)
            if (
                progress.phase is Phase.DRAINED
                and node.annotations.get(marks.PHASE) == Phase.REBOOTING
            ):
                self.reopen()
                return progress.move(Edge.REBOOT_REQUESTED)
            if progress.phase is Phase.REBOOTING and (node.is_ready or self.now.released):
                node = self._after_last_grant(context)
                if not (node.is_ready or self.now.released):
                    # it goes down now
                    self.reopen()
                    return replace(progress, edge=None)
            if _has_rebooted(context, node) and _is_same(context, node):
                self.reopen()
                mark_phase(context, Phase.REBOOTING)
                if progress.phase is Phase.REBOOTING:
                    return replace(progress, edge=None)
                return progress.move(Edge.REBOOT_REQUESTED)
            if (
                isinstance(error, GivenUpError)
                and progress.phase is Phase.REBOOTING
                and not node.is_ready
            ):
                raise _not_rebooted(node, self.timeout) from None
            raise error from None

    def _after_last_grant(self, context: NodeContext) -> Node:
        """Return the Node, once a grant of the moment before the slot was closed has had its time to be followed.

        The slot says since when, so that a server that is restarted goes on waiting, and does not
        begin anew. An operator's word leaves a host that is down by then where it is.
        """
        for node in self._looks(context, Awaited.CALM, min(_SAFE_SECONDS, self.timeout)):
            if _has_rebooted(context, node) or not (node.is_ready or self.now.released):
                break
        return node

    def _looks(self, context: NodeContext, awaited: Awaited, seconds: float) -> Iterator[Node]:
        """Yield the Node as it is, again and again, until this has been waited for so long; at least once."""
        deadline: Deadline | None = None
        while True:
            context.check()
            yield self._looked_at(context)
            if deadline and deadline.expired:
                return
            if deadline is None:
                deadline = context.cluster.deadline(
                    max(0.0, seconds - self.waited(context, awaited))
                )
            deadline.pause(_PAUSE)

    def _looked_at(self, context: NodeContext) -> Node:
        """Return the Node as it is now; of a host that was granted its reboot, the one that it registers again."""
        try:
            return _looked_at(context, self.now.node_uid)
        except NodeFailure:
            if not self._may_return(context):
                raise
        context.step(Phase.REBOOTING, "its Node was deleted: its host may still come back")
        slot = self.now
        node = await_reregistration(
            context.cluster,
            context.check,
            slot,
            self.timeout,
            is_released=lambda: self.now.released,
        )
        mark_again(context, Phase.REBOOTING, {marks.READY_BEFORE: ready_before_it(context)})
        # marked first: whoever goes on from here finds it either way
        context.cluster.ask(
            lambda _api: self.book.change(partial(Slots.changed, run=slot.run, node_uid=node.uid))
        )
        return context.node()

    def _may_return(self, context: NodeContext) -> bool:
        """Whether its host was granted its reboot, as the slot says or, of a moment ago, the Node that is gone."""
        before = context.watched.seen if context.watched else None
        return self.now.awaited in IN_REBOOT or (
            before is not None and before.annotations.get(marks.PHASE) == Phase.REBOOTING
        )

    def _await_grant(self, context: NodeContext, progress: Progress) -> Progress:
        """Until the host asks again; pods that come meanwhile are drained again, a slot it forgets is taken back."""
        refill = _Refill(context)
        detail = "waiting for its host to ask again"
        context.step(Phase.DRAINED, detail, activity=Activity.WAITING)
        for node in self._looks(context, Awaited.ASK, self.timeout):
            if self.now.released:
                raise GivenUpError
            if node.annotations.get(marks.PHASE) == Phase.REBOOTING:
                return progress.move(Edge.REBOOT_REQUESTED)
            if _has_rebooted(context, node):
                context.report.notice(f"{context.name} has rebooted without waiting for its grant")
                mark_phase(context, Phase.REBOOTING)
                return progress.move(Edge.REBOOT_REQUESTED)
            try:
                refill.check()
            except RefilledError as error:
                return self._drain_again(context, progress, error)
        raise NodeFailure(
            Outcome.NOT_REBOOTED,
            f"its host has not asked again within --slot-timeout {self.timeout}",
        )

    def _await_boot(self, context: NodeContext, progress: Progress) -> Progress:
        """Until the kubelet reports another boot of the same machine; bounded by the slot's time.

        A host that reports steady state while its kubelet is up in the boot from before has given
        its reboot up.
        """
        refill = _Refill(context)
        for node in self._looks(context, Awaited.BOOT, self.timeout):
            if _has_rebooted(context, node):
                if not _is_same(context, node):
                    message = (
                        "another machine reports as this Node now: machine id"
                        f" {node.machine_id or 'none'}"
                    )
                    raise NodeFailure(Outcome.NOT_BACK, message)
                mark_phase(context, Phase.BOOTED)
                return replace(progress, boot=_boot_of(node)).move(Edge.BOOTED)
            if self.now.released or (node.is_ready and self.now.returned):
                raise GivenUpError("it is not expected any more")
            if node.is_ready and self.now.closing:
                break
            if node.is_ready:
                try:
                    refill.check()
                except RefilledError as error:
                    return self._drain_again(context, progress, error)
                except DrainError as error:
                    context.report.notice(f"{context.name} was granted its reboot: {error.message}")
        raise _not_rebooted(node, self.timeout)

    def _drain_again(
        self, context: NodeContext, progress: Progress, refilled: RefilledError
    ) -> Progress:
        """Its host has its whole time once more when the node is drained."""
        again = drain_again(context, progress, refilled)
        self.reopen()
        return again

    def _prove_ready(self, context: NodeContext, progress: Progress) -> Progress:
        """Until the kubelet of a new boot reports Ready; of which one, a host that reboots again may change."""
        for node in self._looks(context, Awaited.READY, context.policy.ready_timeout):
            if node.is_ready and _has_rebooted(context, node) and _is_same(context, node):
                mark_phase(context, Phase.READY)
                return replace(progress, boot=_boot_of(node)).move(Edge.READY)
            context.step(Phase.BOOTED, f"waiting for Ready {node.ready_message}".rstrip())
        raise _not_ready(
            context, f"the Node is not Ready within --ready-timeout {context.policy.ready_timeout}"
        )

    def _finish(self, context: NodeContext, progress: Progress) -> Progress:
        """Give the node back once its host has reported, or the slot's time is up: it is proven to be back anyway."""
        context.step(Phase.READY, "waiting for its host to report steady state")
        node = self._await_report(context)
        boot = _boot_of(node)
        after_reboot(context, boot)
        return succeed(context, replace(progress, boot=boot))

    def _await_report(self, context: NodeContext) -> Node:
        """Return the Node, Ready, once its host has reported steady state, or its time for that is up."""
        for node in self._looks(context, Awaited.REPORT, self.timeout):
            if node.is_ready and (self.now.returned or self.now.released):
                break
        if not node.is_ready:
            raise _not_ready(
                context, "the Node was Ready once it had rebooted, and is not any more"
            )
        return node


def _begin(context: NodeContext, progress: Progress) -> Progress:
    """Ask the gates of the moment, then cordon; the host has asked, and its boot is the Node's."""
    context.check()
    node = _looked_at(context, context.planned.node_uid)
    facts = check_eligible(context, node, facts_of(node))
    if objection := context.engine.objection(context.planned, staged_version_of(node) or None):
        raise NotStartedError(finding=objection)
    context.engine.before_node(at_version(context, staged_version_of(node)))
    claim(context, "", facts)
    return replace(progress, marked=True).move(Edge.CORDONED)


def _not_rebooted(node: Node, timeout: Duration) -> NodeFailure:
    """Judge a host that was to reboot: one still up in its old boot works as before, one that is away does not."""
    if node.is_ready:
        message = "its host was granted a reboot, and is up with the boot id from before"
        return NodeFailure(Outcome.NOT_REBOOTED, f"{message} (--slot-timeout {timeout})")
    hint = (
        "Check its console: is it stuck in firmware, the boot loader, or waiting for a disk or the"
        " network?"
    )
    return NodeFailure(
        Outcome.NOT_BACK, f"the host is not back within --slot-timeout {timeout}", hint=hint
    )


def _not_ready(context: NodeContext, message: str) -> NodeFailure:
    see = (f"kubectl describe node {context.name}", "journalctl -u kubelet on the host")
    return NodeFailure(Outcome.NOT_READY, message, see=see)


def _boot_of(node: Node) -> BootFacts:
    return BootFacts(node.boot_id, node.machine_id, version_of(node))


def _looked_at(context: NodeContext, uid: str) -> Node:
    """Return the Node as it is now; raise if it is not the Node that the slot was taken for."""
    try:
        node = context.node()
    except ApiNotFoundError:
        raise NodeRemovedError("its Node was deleted") from None
    if node.uid != uid:
        raise NodeFailure(Outcome.SKIPPED, CREATED_AGAIN)
    return node


def _has_rebooted(context: NodeContext, node: Node) -> bool:
    return bool(node.boot_id) and node.boot_id != context.planned.boot_id


def _is_same(context: NodeContext, node: Node) -> bool:
    """Whether the Node is the machine that has asked: one that was installed anew is another."""
    return node.machine_id == context.planned.machine_id


@dataclass(slots=True)
class _Refill:
    """Looks at a drained node now and then; an API server that is away is no reason to call it refilled."""

    context: NodeContext
    again: Deadline | None = None

    def check(self) -> None:
        """Look whether it may still be rebooted.

        Raises:
            RefilledError: pods have come.
            DrainError: the node is not ours to drain any more.
            WithheldError: what it would boot into is held by now.
        """
        if self.again is not None and not self.again.expired:
            return
        self.again = self.context.cluster.deadline(_LOOK_EVERY)
        try:
            node = look_again(self.context, self.context.cluster.deadline(_LOOK_EVERY))
        except ApiError as error:
            self.context.cluster.notice(error)
            return
        check_version(self.context, staged_version_of(node) or None)
