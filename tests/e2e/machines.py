"""Machines of the tests' own: systemd-nspawn containers with a full systemd on a bridge that leads nowhere else.

Each has its own root (an overlay), address, host key, machine ID and, from boot to boot, its own
kernel-visible boot ID. They are reached at addresses of this bridge only; nothing forwards their
traffic.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.leftovers import PREFIX, forget, groups_for, sweep

RUNNING_VERSION = "4081.2.0"
STAGED_VERSION = "4152.2.1"
_STATE = "var/lib/update_engine"
_REBOOTS = 133
_PLACES = 16
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH_INOTIFY = 4096


@dataclass(frozen=True)
class Place:
    """A bridge and its subnets, one for each of the processes that run tests on real machines side by side.

    There is no way from here to the inner subnet: what arrives there has come through another
    machine.
    """

    number: int

    @property
    def name(self) -> str:
        """What the names of its machines, mounts, links and control groups begin with."""
        return f"{PREFIX}{self.number}-"

    @property
    def bridge(self) -> str:
        return f"{self.name}br"

    @property
    def subnet(self) -> str:
        return f"10.213.{77 + self.number}"

    @property
    def inner_subnet(self) -> str:
        return f"10.214.{77 + self.number}"

    @property
    def in_use(self) -> bool:
        """Whether this machine has a way to such addresses already that is not a bridge of ours
        left behind.
        """
        routes = (
            _said("ip", "route", "show", "root", f"{net}.0/24")
            for net in (self.subnet, self.inner_subnet)
        )
        return any(
            route and self.bridge not in route and "unreachable" not in route for route in routes
        )


@contextlib.contextmanager
def free_place() -> Iterator[Place]:
    """The first place that no other process uses; nothing of ours is left in it afterwards."""
    _sweep_abandoned()
    for place in map(Place, range(_PLACES)):
        with _claimed(place.number) as claimed:
            if not claimed or place.in_use:
                continue
            try:
                yield place
            finally:
                sweep(place.name)
            return
    raise RuntimeError(f"{_PLACES} processes run machines already")


def _sweep_abandoned() -> None:
    """Remove what runs that were killed have left in places that nobody uses now."""
    for number in range(_PLACES):
        with _claimed(number) as claimed:
            if claimed:
                sweep(Place(number).name)


@contextlib.contextmanager
def _claimed(number: int) -> Iterator[bool]:
    """Whether the place is ours, for as long as the context lasts: the system ends a claim with its
    process.
    """
    with (Path(tempfile.gettempdir()) / f"rollout-e2e-{number}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Machine:
    """One machine and its supervisor, a thread that starts it again whenever it has rebooted."""

    def __init__(self, name: str, index: int, directory: Path, place: Place) -> None:
        self.name = name
        self._bridge = place.bridge
        self.address = f"{place.subnet}.{10 + index}"
        self.inner_address = f"{place.inner_subnet}.{10 + index}"
        self.machine_id = uuid.uuid4().hex
        self._in_use = True
        self.root = directory / name / "root"
        self._directory = directory / name
        self._container = f"{place.name}{index}"
        self._switched_on = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, name=name, daemon=True)

    def prepare(self, shared_root: Path, public_key: str, users: Sequence[str]) -> None:
        """Lay its own root over the shared one, with address, keys and identity."""
        layers = [self._directory / layer for layer in ("upper", "work", "root")]
        for layer in layers:
            layer.mkdir(parents=True)
        upper, work, root = layers
        _run(
            *("mount", "-t", "overlay", self._container),
            *("-o", f"lowerdir={shared_root},upperdir={upper},workdir={work}", str(root)),
        )
        network = "".join(
            f"Address={address}/24\n" for address in (self.address, self.inner_address)
        )
        (root / "etc/systemd/network/10-rollout-e2e.network").write_text(
            f"[Match]\nName=host0\n[Network]\nLinkLocalAddressing=no\n{network}"
        )
        (root / "etc/hostname").write_text(f"{self.name}\n")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {self.name}\n")
        (root / "etc/machine-id").write_text(f"{self.machine_id}\n")
        _run(
            *("ssh-keygen", "-q", "-t", "ed25519", "-N", ""),
            *("-f", str(root / "etc/ssh/ssh_host_ed25519_key")),
        )
        for user in users:
            folder = root / "home" / user / ".ssh"
            folder.mkdir()
            (folder / "authorized_keys").write_text(public_key)
        (root / _STATE).mkdir(parents=True)

    @property
    def host_key(self) -> str:
        """Type and base64 of the public key that it shows now."""
        return " ".join((self.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2])

    @property
    def os_version(self) -> str:
        """VERSION of the running system."""
        lines = (self.root / "etc/os-release").read_text().splitlines()
        return next(line.removeprefix("VERSION=") for line in lines if line.startswith("VERSION="))

    def has_booted(self) -> bool:
        """Whether its kubelet is up."""
        return bool(self.booted)

    @property
    def booted(self) -> str:
        """The boot ID that its kubelet wrote when it was up; empty while it is not."""
        leader = self._leader()
        try:
            return (
                Path(f"/proc/{leader}/root/run/kubelet-boot-id").read_text().strip()
                if leader
                else ""
            )
        except OSError:
            return ""

    def put(self, path: str, text: str = "") -> None:
        """Write a file as the running system sees it: one in /run is gone with its boot."""
        Path(f"/proc/{self._leader()}/root{path}").write_text(text)

    def remove(self, path: str) -> None:
        """Take such a file away again."""
        Path(f"/proc/{self._leader()}/root{path}").unlink()

    def has(self, path: str) -> bool:
        """Whether the running system has it."""
        return Path(f"/proc/{self._leader()}/root{path}").exists()

    def switch_on(self) -> None:
        """Start it, and from now on again after each reboot."""
        self._switched_on.set()
        if not self._thread.is_alive():
            self._thread.start()

    def stay_off_after_shutdown(self) -> None:
        """Do not start it again, until it is switched on."""
        self._switched_on.clear()

    def switch_off(self) -> None:
        """End it for good."""
        self._in_use = False
        self._switched_on.set()
        process = self._process
        if process is not None and process.poll() is None:
            leader = self._leader()
            if leader:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(leader, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
        if self._thread.is_alive():
            self._thread.join(20)

    def restore(self) -> None:
        """The old version, an update staged, nothing planned for the next boot."""
        self.clear()
        release = self.root / "etc/os-release"
        release.write_text(release.read_text().replace(STAGED_VERSION, RUNNING_VERSION))
        self.write("staged", STAGED_VERSION)

    def clear(self) -> None:
        """Nothing staged, nothing offered, nothing planned; an attempt to update that is under way
        is over.
        """
        for file in (self.root / _STATE).iterdir():
            file.unlink()
        self.write("story", uuid.uuid4().hex)

    def write(self, name: str, text: str = "") -> None:
        """Write a file that says what the engine reports or what the next boot does."""
        (self.root / _STATE / name).write_text(text)

    def unmount(self) -> None:
        """Give back its root."""
        subprocess.run(["umount", "--lazy", str(self.root)], check=False)

    def _supervise(self) -> None:
        while self._switched_on.wait() and self._in_use:
            forget(self._container)
            with (self._directory / "console").open("ab") as console:
                self._process = subprocess.Popen(
                    self._command(),
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                )
                self._process.wait()
            if not self._in_use:
                return
            if self._process.returncode not in (0, _REBOOTS):
                time.sleep(0.5)

    def _command(self) -> list[str]:
        nspawn = [
            *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
            *(f"--directory={self.root}", f"--machine={self._container}"),
            *(f"--hostname={self.name}", f"--network-bridge={self._bridge}"),
            *("--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=read-only"),
        ]
        # In a control group of its own before it starts: machines that share one kill each other's
        # processes.
        files = " ".join(str(folder / "cgroup.procs") for folder in groups_for(self._container))
        # Told that its supervisor has been killed, it shuts the machine down; killed itself, it
        # would leave it running.
        nspawn = ["setpriv", "--pdeathsig", "TERM", *nspawn]
        return ["sh", "-c", f'for f in {files}; do echo $$ >"$f"; done; exec "$@"', "sh", *nspawn]

    def _leader(self) -> int:
        """The machine's init, a child of nspawn; 0 while there is none."""
        process = self._process
        if process is None or process.poll() is not None:
            return 0
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        except OSError:
            return 0
        return next((int(child) for child in children if _is_init(child)), 0)


@dataclass(frozen=True)
class Machines:
    """All of them, the key that logs in to them, and where their files are."""

    machines: Sequence[Machine]
    key: Path

    def __getitem__(self, name: str) -> Machine:
        return next(machine for machine in self.machines if machine.name == name)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines)


def mark_tests(items: Sequence[pytest.Item], directory: Path, *, reason: str, timeout: int) -> None:
    """Let the tests of a directory take their time, and skip them if there is a reason."""
    for item in items:
        if item.path.is_relative_to(directory):
            item.add_marker(pytest.mark.timeout(timeout))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def missing() -> str:
    """Why no machines can be made here; empty where they can."""
    if not sys.platform.startswith("linux"):
        return "real machines are Linux containers"
    if os.geteuid() != 0:
        return "real machines need root"
    commands = ("debootstrap", "systemd-nspawn", "ip", "ssh-keygen", "mount", "setpriv")
    absent = [command for command in commands if shutil.which(command) is None]
    if absent:
        return f"real machines need {', '.join(absent)}"
    return ""


@contextlib.contextmanager
def running_machines(
    names: Sequence[str], place: Place, shared_root: Path, users: Sequence[str], directory: Path
) -> Iterator[Machines]:
    """Booted machines, with their bridge; nothing of them is left afterwards."""
    _INOTIFY.write_text(str(max(_ENOUGH_INOTIFY, int(_INOTIFY.read_text()))))
    key = directory / "id_ed25519"
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    machines = Machines(
        [Machine(name, index, directory, place) for index, name in enumerate(names)], key
    )
    with _bridge(place):
        try:
            for machine in machines:
                machine.prepare(shared_root, key.with_suffix(".pub").read_text(), users)
                machine.switch_on()
            for machine in machines:
                wait_for(machine.has_booted, f"{machine.name} to boot", 60)
            yield machines
        finally:
            for machine in machines:
                machine.switch_off()
                machine.unmount()


def wait_for(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait until it holds; `TimeoutError` names what did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def _bridge(place: Place) -> Iterator[None]:
    subprocess.run(["ip", "link", "delete", place.bridge], check=False, capture_output=True)
    _run("ip", "link", "add", place.bridge, "type", "bridge")
    try:
        _run("ip", "address", "add", f"{place.subnet}.1/24", "dev", place.bridge)
        _run("ip", "link", "set", place.bridge, "up")
        _run("ip", "route", "replace", "unreachable", f"{place.inner_subnet}.0/24")
        yield
    finally:
        subprocess.run(
            ["ip", "route", "delete", "unreachable", f"{place.inner_subnet}.0/24"], check=False
        )
        subprocess.run(["ip", "link", "delete", place.bridge], check=False)


def _is_init(pid: str) -> bool:
    """Whether it is process 1 of its own namespace: nspawn has a helper child, too, while it starts
    one.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    numbers = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
    return numbers[-1] == "1"


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _run(*command: str) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr.strip()}")
