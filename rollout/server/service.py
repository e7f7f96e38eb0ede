"""The FleetLock server: answers both requests of the protocol, and runs the background threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollout.errors import ApiError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, StopRequest, is_passing
from rollout.model.fleetlock import GroupRules, Slot
from rollout.model.selectors import parse_selector
from rollout.ports import Clock
from rollout.server.admission import SlotAdmission
from rollout.server.holders import await_return, grant, record_report
from rollout.server.protocol import AnswerKind, Ask, Denied, FleetLockAnswer
from rollout.server.state import ServerContext
from rollout.server.worker import Worker

_FRESH = 1.0
# Logged once an hour: answers that any client can cause with any ID or group, and answers that are
# the same for every host.
_OF_STRANGERS = frozenset({AnswerKind.UNKNOWN_ID, AnswerKind.UNKNOWN_GROUP})
_FOR_ALL = _OF_STRANGERS | {
    AnswerKind.SEMAPHORE_FULL,
    AnswerKind.MAX_UNAVAILABLE,
    AnswerKind.PAUSED,
    AnswerKind.OUTSIDE_WINDOW,
    AnswerKind.LOCKED_BY_ROLLOUT,
    AnswerKind.RIVAL,
    AnswerKind.LOCK_LOST,
    AnswerKind.API_UNAVAILABLE,
    AnswerKind.API_ERROR,
    AnswerKind.INTERNAL_ERROR,
}
_HOUR = 3600.0

# The server is ready if the slots were read within this time: they are read every few seconds.
_READY_SECONDS = 10.0
# A thread that hangs is left behind: another server continues from the state in the cluster.
_STOP_SECONDS = 5.0


@dataclass(slots=True)
class AskLog:
    """Passes new answers to `notice`, not repeated ones.

    `name_of` returns the node of a host's ID, or raises `Denied`.
    """

    clock: Clock
    notice: Callable[[str], None]
    name_of: Callable[[str], str]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _kinds: dict[str, AnswerKind] = field(default_factory=dict)
    _logged: dict[str, float] = field(default_factory=dict)

    def note(self, ask: Ask, answer: FleetLockAnswer) -> None:
        with self._lock:
            if not self._remember(ask, answer):
                return
        try:
            name = self.name_of(ask.id)
        except Denied:
            name = ask.id
        self.notice(f"{name} asks, group {ask.group}: {answer.kind}: {answer.value}")

    def _remember(self, ask: Ask, answer: FleetLockAnswer) -> bool:
        if answer.kind not in _FOR_ALL:
            previous = self._kinds.get(ask.id)
            self._kinds[ask.id] = answer.kind
            return previous is not answer.kind
        now = self.clock.monotonic()
        key = answer.kind if answer.kind in _OF_STRANGERS else answer.value
        self._logged = {text: at for text, at in self._logged.items() if now - at < _HOUR}
        is_new = key not in self._logged
        self._logged.setdefault(key, now)
        return is_new


class Service:
    def __init__(self, context: ServerContext, stop: StopRequest) -> None:
        self.context = context
        self.worker = Worker(context, stop)
        self._admission = SlotAdmission(context)
        self._log = AskLog(context.clock, context.notice, context.machines.name_of)

    def pre_reboot(self, ask: Ask) -> FleetLockAnswer:
        answer = self._answered(lambda: self._pre_reboot(ask))
        self._log.note(ask, answer)
        return answer

    def steady_state(self, ask: Ask) -> FleetLockAnswer:
        return self._answered(lambda: self._steady_state(ask))

    def why_not_ready(self) -> str:
        """Return why this server cannot answer, by cached state; empty if it can."""
        try:
            _ = self.context.machines.nodes
        except Denied as denied:
            return denied.answer.value
        return self.context.book.why_unread(_READY_SECONDS)

    def _pre_reboot(self, ask: Ask) -> FleetLockAnswer:
        rules = self._rules(ask)
        machines = self.context.machines
        name = machines.name_of(ask.id)
        if not parse_selector(rules.selector).matches(machines.nodes[name].labels):
            raise Denied(
                AnswerKind.GROUP_MISMATCH,
                f"{name} is not in the group {ask.group} ({rules.selector})",
            )
        slot = self.context.book.seen(_FRESH).of_node(name)
        if slot is None:
            self._admission.take(ask, name, rules)
            self.worker.wake()
            raise Denied(
                AnswerKind.WAITING_FOR_DRAIN,
                f"{name} holds a slot of the group {ask.group} and is being drained",
            )
        return self._answer_holder(ask, slot)

    def _answer_holder(self, ask: Ask, slot: Slot) -> FleetLockAnswer:
        if slot.id != ask.id or slot.group != ask.group:
            raise Denied(
                AnswerKind.WAITING_FOR_PROOF,
                f"{slot.node} holds a slot of the group {slot.group}"
                " under another ID or group; rollout fleetlock release frees it",
            )
        detail = self.worker.runner.details.get(slot.node)
        return grant(self.context, slot, f": {detail}" if detail else "")

    def _steady_state(self, ask: Ask) -> FleetLockAnswer:
        self._rules(ask)
        slot = record_report(self.context, ask)
        if slot is None:
            return FleetLockAnswer(AnswerKind.NOT_HELD, "no slot is held by this host")
        self.worker.wake()
        return await_return(self.context, slot)

    def _rules(self, ask: Ask) -> GroupRules:
        rules = self.context.settings.groups.rules(ask.group)
        if rules is None:
            raise Denied(
                AnswerKind.UNKNOWN_GROUP,
                f"the group {ask.group} is not configured: --group {ask.group}=COUNT",
            )
        return rules

    def _answered(self, answer: Callable[[], FleetLockAnswer]) -> FleetLockAnswer:
        try:
            return answer()
        except Denied as denied:
            return denied.answer
        except FencedError as error:
            return FleetLockAnswer(AnswerKind.LOCK_LOST, error.message)
        except ApiError as error:
            kind = AnswerKind.API_UNAVAILABLE if is_passing(error) else AnswerKind.API_ERROR
            return FleetLockAnswer(kind, error.message)
        except RolloutError as error:
            return FleetLockAnswer(AnswerKind.NODE_EXCLUDED, error.message)
        except Exception as error:  # noqa: BLE001 - a defect denies the request
            self.context.notice(f"internal error, please report it: {error!r}")
            message = "internal error, see the server's log"
            return FleetLockAnswer(AnswerKind.INTERNAL_ERROR, message)


@contextmanager
def under_way(context: ServerContext) -> Iterator[Service]:
    """Run a server; on exit, release the Lease and leave every node as it is."""
    stop = StopRequest()
    service = Service(context, stop)
    threads = (
        threading.Thread(
            target=context.machines.follow, args=(stop,), name="machines", daemon=True
        ),
        threading.Thread(target=service.worker.run, name="worker", daemon=True),
    )
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        stop.request()
        service.worker.wake()
        deadline = Deadline(context.clock, _STOP_SECONDS)
        for thread in threads:
            thread.join(deadline.remaining)
