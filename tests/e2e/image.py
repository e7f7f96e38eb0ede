"""The root that all machines share: a minimal Debian with full systemd, sshd, D-Bus and a stand-in update_engine.

Built once and kept outside the tree under the hash of all that goes into it: the next run starts from it.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

_SUITE = "bookworm"
_PACKAGES = ("systemd-sysv", "dbus", "openssh-server", "sudo", "python3-jeepney", "iproute2")
_OVER_IT = Path(__file__).with_name("machine")
USERS = ("core", "ops", "careful", "guest")
UNITS = ("systemd-networkd", "rollout-e2e-boot", "update-engine", "kubelet", "ssh")
_OS_RELEASE = """\
NAME="Flatcar Container Linux by Kinvolk"
ID=flatcar
VERSION=4081.2.0
VERSION_ID=4081.2.0
PRETTY_NAME="Flatcar Container Linux by Kinvolk 4081.2.0 (Oklo)"
"""


def shared_root() -> Path:
    """The finished root, from the cache or made now (about a minute)."""
    cache = Path(os.environ.get("ROLLOUT_E2E_CACHE", Path(tempfile.gettempdir()) / "rollout-e2e-cache"))
    root, building = cache / _key(), cache / f"{_key()}.building"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        # Two processes that test at the same time need it once.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            shutil.rmtree(building, ignore_errors=True)
            _build(building)
            building.rename(root)
    return root


def _key() -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for file in sorted(_OVER_IT.rglob("*")):
        if file.is_file():
            digest.update(str(file.relative_to(_OVER_IT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(root: Path) -> None:
    include = ",".join(_PACKAGES)
    _run("debootstrap", "--variant=minbase", f"--include={include}", _SUITE, str(root))
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
    _run("chroot", str(root), "systemctl", "mask", "--quiet", "systemd-networkd-wait-online", "apt-daily.timer")


def _run(*command: str) -> None:
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stdout[-2000:]}{ended.stderr[-2000:]}")
