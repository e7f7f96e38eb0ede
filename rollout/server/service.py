import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rollout.errors import ApiError, FencedError
from rollout.execution.base.deadline import Deadline, GracefulStop, is_transient
from rollout.model.fleetlock import GroupRules, Slot
from rollout.model.selectors import parse_selector
from rollout.ports import Clock
from rollout.server.admission import SlotAdmission
from rollout.server.nodes import NodesUnknownError
from rollout.server.protocol import INTERNAL_ERROR, AnswerKind, Denied, FleetLockAnswer, HostRequest
from rollout.server.slot_requests import await_return, grant_reboot, record_report
from rollout.server.state import ServerContext
from rollout.server.worker import Worker
from rollout.wording.words import defect

# Any client can cause these.
_TO_STRANGERS = frozenset({AnswerKind.UNKNOWN_ID, AnswerKind.UNKNOWN_GROUP})
# Frequent, and rarely about one host.
_LOGGED_HOURLY = _TO_STRANGERS | {
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

_READY_SECONDS = 10.0
# A hanging thread is left behind: another replica continues.
_STOP_SECONDS = 5.0


@dataclass(slots=True)
class AnswerLog:
    clock: Clock
    notice: Callable[[str], None]
    # May raise `Denied` or `NodesUnknownError`.
    node_name: Callable[[str], str]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last_kinds: dict[str, AnswerKind] = field(default_factory=dict)
    # In monotonic seconds, by kind or text.
    _logged_at: dict[str, float] = field(default_factory=dict)

    def note(self, request: HostRequest, answer: FleetLockAnswer) -> None:
        with self._lock:
            is_new = self._note_if_new(request, answer)
        if not is_new:
            return
        try:
            name = self.node_name(request.id)
        except (Denied, NodesUnknownError):
            name = request.id
        self.notice(
            f"{name} requests a reboot, group {request.group}: {answer.kind}: {answer.value}"
        )

    def _note_if_new(self, request: HostRequest, answer: FleetLockAnswer) -> bool:
        if answer.kind not in _LOGGED_HOURLY:
            previous_kind = self._last_kinds.get(request.id)
            self._last_kinds[request.id] = answer.kind
            return answer.kind is not previous_kind
        # Strangers share one line an hour, so that nobody can fill the log.
        is_to_stranger = answer.kind in _TO_STRANGERS
        key = answer.kind if is_to_stranger else answer.value
        now = self.clock.monotonic()
        for logged_key, logged_at in list(self._logged_at.items()):
            if now - logged_at >= _HOUR:
                del self._logged_at[logged_key]
        is_new = key not in self._logged_at
        if is_new:
            self._logged_at[key] = now
        return is_new


class Service:
    """Answers the two requests of a host.

    pre-reboot    reserves a slot at first; then is denied until the node is drained
    steady-state  says that the host does not want to reboot, usually after its reboot
    """

    def __init__(self, server: ServerContext, stop: GracefulStop) -> None:
        self.server = server
        self.worker = Worker(server, stop)
        self._admission = SlotAdmission(server)

        def node_name(host_id: str) -> str:
            return server.nodes.of_host(host_id).name

        self._log = AnswerLog(server.clock, server.notice, node_name)

    def pre_reboot(self, request: HostRequest) -> FleetLockAnswer:
        answer = self._answer_or_error(lambda: self._pre_reboot(request))
        self._log.note(request, answer)
        return answer

    def steady_state(self, request: HostRequest) -> FleetLockAnswer:
        return self._answer_or_error(lambda: self._steady_state(request))

    def why_not_ready(self) -> str:
        try:
            self.server.nodes.require_all()
        except NodesUnknownError as error:
            return error.message
        return self.server.slots.why_stale(_READY_SECONDS)

    def _pre_reboot(self, request: HostRequest) -> FleetLockAnswer:
        rules = self._require_rules(request)
        node = self.server.nodes.of_host(request.id)
        if not parse_selector(rules.selector).matches(node.labels):
            raise Denied(
                AnswerKind.GROUP_MISMATCH,
                f"{node.name} is not in the group {request.group} ({rules.selector})",
            )
        slot = self.server.slots.read_unless_fresh().of_node(node.name)
        if slot is not None:
            return self._answer_slot_holder(request, slot)
        self._admission.reserve(request, node, rules)
        # Another replica's worker finds the slot at its next poll.
        self.worker.wake()
        return FleetLockAnswer(
            AnswerKind.WAITING_FOR_DRAIN,
            f"{node.name} holds a slot of the group {request.group} and is being drained",
        )

    def _answer_slot_holder(self, request: HostRequest, slot: Slot) -> FleetLockAnswer:
        is_slot_of_host = slot.id == request.id and slot.group == request.group
        if not is_slot_of_host:
            raise Denied(
                AnswerKind.WAITING_FOR_PROOF,
                f"{slot.node} holds a slot of the group {slot.group}"
                " under another ID or group; to release it, run: rollout fleetlock release"
                f" {slot.node}",
            )
        return grant_reboot(self.server, slot, self.worker.detail(slot))

    def _steady_state(self, request: HostRequest) -> FleetLockAnswer:
        self._require_rules(request)
        slot = record_report(self.server, request)
        if slot is None:
            return FleetLockAnswer(AnswerKind.NOT_HELD, "no slot is held by this host")
        self.worker.wake()
        return await_return(self.server, slot)

    def _require_rules(self, request: HostRequest) -> GroupRules:
        rules = self.server.settings.groups.rules(request.group)
        if rules is None:
            raise Denied(
                AnswerKind.UNKNOWN_GROUP,
                f"the group {request.group} is not configured: --group {request.group}=COUNT",
            )
        return rules

    def _answer_or_error(self, answer: Callable[[], FleetLockAnswer]) -> FleetLockAnswer:
        try:
            return answer()
        except Denied as denied:
            return denied.answer
        except FencedError as error:
            return FleetLockAnswer(AnswerKind.LOCK_LOST, error.message)
        except ApiError as error:
            kind = AnswerKind.API_UNAVAILABLE if is_transient(error) else AnswerKind.API_ERROR
            return FleetLockAnswer(kind, error.message)
        except Exception as error:  # noqa: BLE001 - a defect denies the request
            self.server.notice(defect(error))
            return INTERNAL_ERROR


@contextmanager
def running_service(server: ServerContext) -> Iterator[Service]:
    stop = GracefulStop()
    service = Service(server, stop)
    threads = (
        threading.Thread(target=server.nodes.follow, args=(stop,), name="nodes", daemon=True),
        threading.Thread(target=service.worker.work_until_stopped, name="worker", daemon=True),
    )
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        stop.request()
        service.worker.wake()
        deadline = Deadline(server.clock, _STOP_SECONDS)
        for thread in threads:
            thread.join(deadline.remaining)
