"""A host, which knows nothing of SSH or Kubernetes but notifies its observers."""

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from rollout.lab.clock import LabClock
from rollout.lab.hosts.engine import System, UpdateEngine, image_name, next_version
from rollout.lab.hosts.faults import HEALTHY, HostFaults, RebootFault, UpdateFault
from rollout.model.host import UpdateOperation
from rollout.model.quantity import Seconds

UPDATE_ENGINE: Final = "update-engine.service"
LOCKSMITHD: Final = "locksmithd.service"
ZINCATI: Final = "zincati.service"
_ALWAYS_ON: Final = (
    "containerd.service",
    "kubelet.service",
    "sshd.service",
    "systemd-logind.service",
)


class UnitFault(StrEnum):
    """Why a unit does not run, from the start and after each boot."""

    MASKED = "masked"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(slots=True)
class Unit:
    name: str
    active: bool
    enabled: bool
    masked: bool = False
    failed: bool = False

    @property
    def state(self) -> str:
        if self.active:
            return "active"
        return "failed" if self.failed else "inactive"


# Microseconds from the boot.
_UNITS_BEGIN: Final = "8000000"


class Units:
    def __init__(self, settings: "HostSettings") -> None:
        self._units = {name: Unit(name, active=True, enabled=True) for name in _ALWAYS_ON}
        if settings.zincati is not None:
            self._units[ZINCATI] = Unit(ZINCATI, active=True, enabled=True)
        if settings.system in (None, System.FLATCAR):
            runs = bool(settings.locksmithd)
            self._units[UPDATE_ENGINE] = Unit(UPDATE_ENGINE, active=True, enabled=True)
            self._units[LOCKSMITHD] = Unit(LOCKSMITHD, active=runs, enabled=runs, masked=not runs)
        for name, fault in settings.units.items():
            self._units[name] = Unit(
                name,
                active=False,
                enabled=fault is UnitFault.FAILED,
                masked=fault is UnitFault.MASKED,
                failed=fault is UnitFault.FAILED,
            )

    def find(self, name: str) -> Unit | None:
        return self._units.get(name if "." in name else f"{name}.service")

    def properties(self, name: str) -> dict[str, str]:
        unit = self.find(name)
        if unit is None:
            missing = {"LoadState": "not-found", "ActiveState": "inactive", "UnitFileState": ""}
            return {**missing, "ActiveEnterTimestampMonotonic": "0"}
        properties = {
            "LoadState": "loaded",
            "ActiveState": unit.state,
            "ActiveEnterTimestampMonotonic": _UNITS_BEGIN if unit.active else "0",
            "UnitFileState": "enabled" if unit.enabled else "disabled",
        }
        if unit.masked:
            properties |= {"LoadState": "masked", "UnitFileState": "masked"}
        return properties

    def active(self, name: str) -> bool:
        unit = self.find(name)
        return unit is not None and unit.active

    def boot(self) -> None:
        for unit in self._units.values():
            unit.active = unit.enabled and not (unit.masked or unit.failed)


_VERSION: Final = "4081.2.0"
_STEP_SECONDS: Final = 3
STAGED_LOCK: Final = "/run/ostree/staged-deployment-locked"
_VOLATILE: Final = ("/run/", "/tmp/", "/var/run/", "/dev/shm/")  # noqa: S108


class Power(StrEnum):
    RUNNING = "running"
    SHUTTING_DOWN = "shutting-down"
    OFF = "off"


class HostTimings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All durations are simulated seconds."""

    shutdown: Seconds = 2
    boot: Seconds = 20


class HostCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    output: str = ""
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0
    reboots: bool = False


class EngineState(StrEnum):
    IDLE = "idle"
    DOWNLOADING = "downloading"
    STAGED = "staged"
    STAGED_FORGOTTEN = "staged-forgotten"


class Update(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`to` is the version that is staged or available.

    `checked_days_ago` is when the update server last answered; None if it never has.
    """

    state: EngineState = EngineState.STAGED
    to: str | None = "4152.2.0"
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.42
    checked_days_ago: Annotated[float, msgspec.Meta(ge=0, le=1000)] | None = 0.01

    def __post_init__(self) -> None:
        if self.to is None and self.state is not EngineState.IDLE:
            raise ValueError(f"the update state {self.state} needs a version in `to`")


class ZincatiHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    group: str = "default"


class HostSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None keeps the earlier value.

    `flaps` lists seconds after the node became ready, and whether it is Ready from then on.
    `address_of` is the host whose address the kubelet reports. `files` exist from the start; every
    boot writes `boot_files`. `commands` answer lines that the lab does not know. `agent`: FLUO's
    agent withdraws its reboot request after a reboot. `units` (`update-engine.service`) do not run.
    `previous` is the version on the other partition or deployment.
    """

    version: str | None = None
    previous: str | None = None
    update: Update | None = None
    locksmithd: bool | None = None
    cordoned: bool | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Mapping[str, Any], ...] | None = None
    capacity: Mapping[str, str] = {}
    faults: HostFaults | None = None
    flaps: tuple[tuple[float, bool], ...] | None = None
    address_of: str | None = None
    system: System | None = None
    files: Mapping[str, str] = {}
    boot_files: Mapping[str, str] = {}
    commands: Mapping[str, HostCommand] = {}
    agent: bool | None = None
    zincati: ZincatiHost | None = None
    units: Mapping[str, UnitFault] = {}


class HostEvent(StrEnum):
    """STOPPING: no new connections. DOWN: nothing runs. UP: booted.

    CHANGED: its faults were replaced.
    """

    STOPPING = "stopping"
    DOWN = "down"
    UP = "up"
    CHANGED = "changed"


class Machine:
    """The state of one host.

    `machine_id` (32 hex digits) never changes, `boot_id` (a UUID) with each boot. `observers` are
    called in order. `run_as_root` has the commands that sudo allowed. `previous_version` may be
    empty. `booted_slot` is 0 or 1; the other one boots next if it holds a staged update, or if
    `boots_other`.
    """

    def __init__(
        self,
        name: str,
        address: str,
        settings: HostSettings,
        *,
        clock: LabClock,
        rng: random.Random,
        timings: HostTimings | None = None,
    ) -> None:
        self._rng = rng
        self.name = name
        self.address = address
        self.machine_id = uuid.UUID(int=rng.getrandbits(128), version=4).hex
        self.settings = settings
        self.clock = clock
        self.timings = timings or HostTimings()
        self.faults = settings.faults or HEALTHY
        self.system = settings.system or System.FLATCAR
        self.units = Units(settings)
        self.boot_files = settings.boot_files
        self.files: dict[str, str] = {**settings.files, **settings.boot_files}
        self.os_version = settings.version or _VERSION
        self.previous_version = settings.previous or ""
        self.booted_slot = 0
        self.boots_other = False
        self.update_engine = _update_engine(settings.update or Update(), clock.now())
        self.power = Power.RUNNING
        self.reboots = 0
        self.boot_id = self._new_boot_id()
        self.booted_at = clock.now()
        self.observers: list[Callable[[HostEvent], None]] = []
        self.run_as_root: list[str] = []
        self.background: set[asyncio.Task[object]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    @property
    def running(self) -> bool:
        """Whether the system runs, as it still does while the host shuts down."""
        return self.power is not Power.OFF

    @property
    def users(self) -> tuple[str, ...]:
        return () if self.reboots else self.faults.users

    @property
    def os_image(self) -> str:
        return image_name(self.os_version, self.system)

    def inflict(self, faults: HostFaults) -> None:
        self.faults = faults
        self._notify(HostEvent.CHANGED)
        self.start()

    def start(self) -> None:
        faults = self.faults
        for delay in (faults.reboots_itself_after_seconds, faults.shuts_down_after_seconds):
            if delay is not None:
                self._after(delay, self.reboot)

    def stop(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        for task in self.background:
            task.cancel()

    def reboot(self) -> None:
        if self.power is not Power.RUNNING or self.faults.reboot is RebootFault.IGNORED:
            return
        self.power = Power.SHUTTING_DOWN
        self._notify(HostEvent.STOPPING)
        self._after(self.timings.shutdown, self._boot_anew)

    def cut_power(self) -> None:
        if self.power is not Power.OFF:
            self.stop()
            self.power = Power.OFF
            self._notify(HostEvent.DOWN)

    def power_on(self) -> None:
        if self.power is not Power.OFF:
            return
        self.power = Power.RUNNING
        self.reboots += 1
        self.boot_id = self._new_boot_id()
        self.booted_at = self.clock.now()
        staged = self.update_engine.staged or self.os_version
        if self.faults.reboot is not RebootFault.ROLLS_BACK and STAGED_LOCK not in self.files:
            self._boot_next_slot()
        self.update_engine.boot(self.os_version)
        if self.faults.stages_again:
            checked = int(self.booted_at.timestamp())
            self.update_engine = UpdateEngine.with_staged(next_version(staged), checked=checked)
        self.units.boot()
        kept = {path: text for path, text in self.files.items() if not path.startswith(_VOLATILE)}
        self.files = {**kept, **self.boot_files}
        self._notify(HostEvent.UP)

    def _boot_next_slot(self) -> None:
        other = self.update_engine.staged or (self.previous_version if self.boots_other else "")
        if not other:
            return
        self.previous_version = self.os_version
        self.os_version = other
        self.booted_slot = 1 - self.booted_slot
        self.boots_other = False

    def attempt_update(self) -> None:
        if self.faults.update is not UpdateFault.IGNORED and self.update_engine.begin_attempt():
            self._after(_STEP_SECONDS, self._advance_update)

    def spawn(self, work: Coroutine[object, object, object]) -> asyncio.Task[object]:
        """The task ends at the latest when the host goes down."""
        task = asyncio.get_running_loop().create_task(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    def _notify(self, event: HostEvent) -> None:
        for observer in self.observers:
            observer(event)

    def _boot_anew(self) -> None:
        self.cut_power()
        if self.faults.reboot is not RebootFault.NEVER_RETURNS:
            seconds = self.faults.boot_seconds
            self._after(self.timings.boot if seconds is None else seconds, self.power_on)

    def _advance_update(self) -> None:
        if self.update_engine.advance(int(self.clock.now().timestamp()), self.faults.update):
            self._after(_STEP_SECONDS, self._advance_update)

    def _new_boot_id(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            action()

        timer = asyncio.get_running_loop().call_later(self.clock.scaled(seconds), run)
        self._timers.add(timer)


def _update_engine(update: Update, now: datetime) -> UpdateEngine:
    checked = 0
    if update.checked_days_ago is not None:
        checked = int((now - timedelta(days=update.checked_days_ago)).timestamp())
    is_staged = update.state in (EngineState.STAGED, EngineState.STAGED_FORGOTTEN)
    if update.to is not None and is_staged:
        engine = UpdateEngine.with_staged(update.to, checked=checked)
        if update.state is EngineState.STAGED_FORGOTTEN:
            engine.restart()
        return engine
    engine = UpdateEngine(available=update.to, last_checked=checked)
    if update.state is EngineState.DOWNLOADING:
        engine.operation = UpdateOperation.DOWNLOADING
        engine.progress = update.progress
    return engine
