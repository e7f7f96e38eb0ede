"""The two requests of the protocol, answered; whatever goes wrong on the way is a no."""

from collections.abc import Callable
from dataclasses import dataclass

from rollout.errors import ApiError, FencedError, RolloutError
from rollout.execution.base.deadline import is_passing
from rollout.model.fleetlock import GroupRules, Slot, SlotState
from rollout.planning.selector import parse_selector
from rollout.server.admission import Admission
from rollout.server.answers import Answer, Denied, Kind
from rollout.server.ask_log import AskLog
from rollout.server.grants import Grants
from rollout.server.machines import Machines
from rollout.server.releases import NOT_HELD, Releases
from rollout.server.requests import Ask
from rollout.server.settings import ServerSettings, World
from rollout.server.slots import SlotBook
from rollout.server.worker import Worker

_FRESH = 1.0


@dataclass(frozen=True, slots=True)
class Service:
    """Answers asks, in any thread."""

    settings: ServerSettings
    world: World
    machines: Machines
    book: SlotBook
    admission: Admission
    grants: Grants
    releases: Releases
    worker: Worker
    log: AskLog

    def pre_reboot(self, ask: Ask) -> Answer:
        """Whether the host may reboot now."""
        answer = self._answered(lambda: self._pre_reboot(ask))
        self.log.note(ask, answer)
        return answer

    def steady_state(self, ask: Ask) -> Answer:
        """Whether the host's slot is free."""
        return self._answered(lambda: self._steady_state(ask))

    def _pre_reboot(self, ask: Ask) -> Answer:
        rules = self._rules(ask)
        name = self.machines.name_of(ask.id)
        if not parse_selector(rules.selector).matches(self.machines.nodes[name].labels):
            raise Denied(Kind.GROUP_MISMATCH, f"{name} is not in the group {ask.group} ({rules.selector})")
        slot = self.book.seen(_FRESH).of_node(name)
        if slot is None:
            slot = self.admission.take(ask, name, rules).of_node(name)
            self.worker.wake()
            raise Denied(Kind.WAITING_FOR_DRAIN, f"{name} holds a slot of the group {ask.group} and is being drained")
        return self._answer_holder(ask, slot)

    def _answer_holder(self, ask: Ask, slot: Slot) -> Answer:
        if slot.id != ask.id or slot.group != ask.group:
            held = f"{slot.node} holds a slot of the group {slot.group}"
            raise Denied(
                Kind.WAITING_FOR_PROOF, f"{held} under another id or group; rollout fleetlock release frees it"
            )
        detail = self.worker.detail(slot.node)
        try:
            return self.grants.answer(slot, f": {detail}" if detail else "")
        except Denied as denied:
            if denied.answer.kind is Kind.WAITING_FOR_PROOF and slot.state is SlotState.HELD and not slot.returned:
                # it asks for its next reboot: so it has come to rest after the last
                self.book.change(lambda slots: slots.changed(slot.run, returned=True))
            raise

    def _steady_state(self, ask: Ask) -> Answer:
        self._rules(ask)
        answer = self.releases.answer(ask)
        if answer is not NOT_HELD:
            self.worker.wake()
        return answer

    def _rules(self, ask: Ask) -> GroupRules:
        rules = self.settings.groups.rules(ask.group)
        if rules is None:
            raise Denied(Kind.UNKNOWN_GROUP, f"the group {ask.group} is not configured: --group {ask.group}=COUNT")
        return rules

    def _answered(self, answer: Callable[[], Answer]) -> Answer:
        try:
            return answer()
        except Denied as denied:
            return denied.answer
        except FencedError as error:
            return Answer(Kind.LOCK_LOST, error.message)
        except ApiError as error:
            return Answer(Kind.API_UNAVAILABLE if is_passing(error) else Kind.API_ERROR, error.message)
        except RolloutError as error:
            return Answer(Kind.NODE_EXCLUDED, error.message)
        except Exception as error:  # noqa: BLE001 - a defect of this program is a no, too
            self.world.notice(f"internal error, please report it: {error!r}")
            return Answer(Kind.INTERNAL_ERROR, "internal error, see the server's log")
