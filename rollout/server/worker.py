"""Whoever holds the Lease takes the nodes of all slots on their way; every replica runs this, and one of them works.

The Lease is taken when a slot is, and given back with the last one. Where its holder dies, another replica sees it go
unrenewed for its whole duration, takes it, and goes on with each node from its marks.
"""

import threading
from contextlib import suppress
from functools import partial

from rollout.errors import ApiError, BlockedError, FencedError, RolloutError
from rollout.execution.base.deadline import Deadline, Guard, PatientApi, StopRequest
from rollout.execution.lease import Holder
from rollout.execution.lock import LeaseLock
from rollout.model.cluster import ReadyState
from rollout.model.fleetlock import Awaited, Slot, Slots, SlotState
from rollout.model.progress import NodeResult, Outcome
from rollout.server.nodes import node_of
from rollout.server.slot_run import SlotRunner
from rollout.server.state import Troubles, World

# Seconds between two looks at the slots: while there is work, and while there is none.
_TICK = 1.0
_IDLE = 3.0
_LEAVING = 2.0
_REST = 10.0
_SLOTS = "the slots of FleetLock"


class Worker:
    """Works on slots until it is stopped. `wake` has it look at once."""

    def __init__(self, world: World, stop: StopRequest) -> None:
        self._settings = world.settings
        self._world = world
        self._leadership = world.leadership
        self._stop = stop
        self._woken = threading.Event()
        self._turns: dict[str, tuple[threading.Thread, StopRequest]] = {}
        self._slots = Slots()
        self._failed: dict[str, Deadline] = {}
        self._troubles = Troubles(world.notice)
        self.runner = SlotRunner(world, stop)

    def wake(self) -> None:
        """There is a new slot, or news of one."""
        self._woken.set()

    @property
    def working(self) -> int:
        """How many nodes this server takes through their reboots now."""
        return len(self._turns)

    def run(self) -> None:
        """Until the stop is asked for; whatever goes wrong meanwhile is told, and tried again."""
        while not self._stop.requested:
            try:
                self._look()
                if self._open():
                    self._try_to_lead()
            except RolloutError as error:
                self._troubles.tell(_SLOTS, error.message)
            except Exception as error:  # noqa: BLE001 - no defect of this program ends the one thread that gives back
                self._troubles.tell(_SLOTS, f"internal error, please report it: {error!r}")
            else:
                self._troubles.end(_SLOTS)
            self._pause(_TICK if self._open() else _IDLE)

    def _pause(self, seconds: float) -> None:
        self._world.clock.wait(self._woken, seconds)
        self._woken.clear()

    def _look(self) -> None:
        self._slots = self._world.book.read()
        if self._slots.held:
            self._leadership.look()

    def _open(self) -> list[Slot]:
        """Return the slots that somebody has to work on."""
        return [slot for slot in self._slots.held if slot.state is SlotState.HELD or slot.released]

    def _try_to_lead(self) -> None:
        """Take the Lease where nobody has it, or its holder has died; then work until nothing is left."""
        state = self._leadership.look()
        if state not in (Holder.NOBODY, Holder.GONE):
            return
        cluster = PatientApi(self._world.api, self._world.clock, seconds=self._settings.api_patience)
        lock = LeaseLock(
            cluster,
            self._settings.namespace,
            self._settings.holder,
            self._open()[0].run,
            self._settings.lease_seconds,
            stop=self._stop,
            watch=self._leadership.watch,
        )
        tenure = StopRequest()
        with suppress(BlockedError), lock:
            self._leadership.lock = lock
            try:
                self._lead(lock, tenure)
            finally:
                tenure.request()
                self._leadership.lock = None

    def _lead(self, lock: LeaseLock, tenure: StopRequest) -> None:
        """Work on every slot while the Lease is ours; leave all as it is where it is not, or this server ends."""
        while not self._stop.requested and (self._open() or self._turns):
            with suppress(ApiError):
                self._look()
            self._end_turns()
            try:
                lock.check()
            except FencedError as error:
                self._world.notice(error.message)
                break
            for slot in self._open():
                # one whose last turn met a failure that it could not tell apart is not tried again at once
                rest = self._failed.get(slot.run)
                if slot.run not in self._turns and (rest is None or rest.expired):
                    self._begin(slot, lock, tenure)
            self._pause(_TICK)
        tenure.request()
        leaving = Deadline(self._world.clock, _LEAVING)
        for thread, _stop in self._turns.values():
            thread.join(leaving.remaining)
        self._turns.clear()

    def _begin(self, slot: Slot, lock: LeaseLock, tenure: StopRequest) -> None:
        stop = StopRequest(revert=True)

        def check() -> None:
            """Return while this turn may act: a lock that was given back does not tell a turn that outlives it."""
            if self._stop.requested or tenure.requested:
                raise FencedError("this server is not in charge any more: whoever is goes on with the node")
            if self._slots.of_run(slot.run) is None:
                raise FencedError("its slot was freed: the node is left as it is")
            lock.check()

        thread = threading.Thread(target=self._turn, args=(slot, check, stop), name=f"turn-{slot.node}", daemon=True)
        self._turns[slot.run] = thread, stop
        thread.start()

    def _end_turns(self) -> None:
        """Forget turns that have ended; have those that are released give their nodes back."""
        for run, (thread, stop) in list(self._turns.items()):
            slot = self._slots.of_run(run)
            if slot is not None and slot.released:
                stop.request()
            if not thread.is_alive():
                del self._turns[run]

    def _turn(self, slot: Slot, check: Guard, stop: StopRequest) -> None:
        """One turn, from wherever its node stands, and what becomes of its slot."""
        try:
            result = self.runner.run(slot, check, stop)
            self._settle_slot(slot, result)
            self._troubles.end(slot.node)
        except RolloutError as error:
            self._fail(slot, error.message)
        except Exception as error:  # noqa: BLE001 - the slot stays held, and another look is taken at it
            self._fail(slot, f"internal error, please report it: {error!r}")
        self.wake()

    def _fail(self, slot: Slot, why: str) -> None:
        self._failed[slot.run] = Deadline(self._world.clock, _REST)
        self._troubles.tell(slot.node, why)

    def _settle_slot(self, slot: Slot, result: NodeResult | None) -> None:
        """Free the slot of a node that is back, or gone; one that stays cordoned keeps it, unless it is away."""
        if result is not None and result.outcome is Outcome.FENCED:
            return
        stays_cordoned = result is not None and result.left_cordoned and not slot.released
        node = node_of(self._world.api, slot) if stays_cordoned else None
        if node is None:
            self._world.book.change(lambda slots: slots.without(slot.run))
            return
        # that it is absent is proven by its kubelet, which has stopped reporting; one that says not Ready is there
        state = SlotState.ABSENT if node.ready is ReadyState.UNKNOWN else SlotState.FAILED
        begun_anew = partial(
            Slots.changed, run=slot.run, state=state, returned=False, closing=False, awaited=Awaited.NOTHING
        )
        self._world.book.change(begun_anew)
