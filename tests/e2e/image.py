"""The root that all machines share: a minimal Debian with full systemd, sshd, D-Bus and a stand-in update_engine.

Built once and kept outside the tree under the hash of all that goes into it: the next run starts
from it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

_SUITE = "bookworm"
_PACKAGES = ("systemd-sysv", "dbus", "openssh-server", "sudo", "python3-jeepney", "iproute2")
_OVER_IT = Path(__file__).with_name("machine")
# what sudo lets each do is in the machine's sudoers file
USERS = ("core", "ops", "narrow", "both", "careful", "partly", "guest", "stranger", "typist")
UNITS = ("systemd-networkd", "rollout-e2e-boot", "update-engine", "kubelet", "ssh")
_OS_RELEASE = """\
NAME="Flatcar Container Linux by Kinvolk"
ID=flatcar
VERSION=4081.2.0
VERSION_ID=4081.2.0
PRETTY_NAME="Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)"
"""


def shared_root() -> Path:
    """The finished root, from the cache or made now (about a minute; seconds where only what lies
    over it is new).
    """
    cache = Path(
        os.environ.get("ROLLOUT_E2E_CACHE", Path(tempfile.gettempdir()) / "rollout-e2e-cache")
    )
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # Two processes that test at the same time need it once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        base = _made(cache / f"base-{_digest(_SUITE, *_PACKAGES)}", _bootstrap)
        return _made(cache / _key(), lambda root: _finish(base, root))


def _made(root: Path, make: Callable[[Path], None]) -> Path:
    """The folder, made now where it is not there; half a folder is never taken for a whole one."""
    if not root.exists():
        building = root.with_name(f"{root.name}.building")
        shutil.rmtree(building, ignore_errors=True)
        make(building)
        building.rename(root)
    return root


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _key() -> str:
    files = [file for file in sorted(_OVER_IT.rglob("*")) if file.is_file()]
    parts = (f"{file.relative_to(_OVER_IT)}\0{file.read_text()}" for file in files)
    return _digest(Path(__file__).read_text(), *parts)


def _bootstrap(root: Path) -> None:
    _run("debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(root))


def _finish(base: Path, root: Path) -> None:
    _run("cp", "--archive", "--reflink=auto", str(base), str(root))
    shutil.copytree(_OVER_IT, root, dirs_exist_ok=True, symlinks=True)
    (root / "etc/sudoers.d/rollout-e2e").chmod(0o440)
    for user in USERS:
        _run("chroot", str(root), "useradd", "--create-home", "--shell", "/bin/bash", user)
        # Unlocked, for a locked account's keys are refused; nothing hashes to it.
        _run("chroot", str(root), "usermod", "--password", "*", user)
    # A link into /usr in Debian; what a boot rewrites has to be a file.
    (root / "etc/os-release").unlink()
    (root / "etc/os-release").write_text(_OS_RELEASE)
    (root / "etc/machine-id").write_text("")
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    _run("chroot", str(root), "systemctl", "enable", "--quiet", *UNITS)
    _run(
        "chroot",
        str(root),
        "systemctl",
        "mask",
        "--quiet",
        "systemd-networkd-wait-online",
        "apt-daily.timer",
    )


def _run(*command: str) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
