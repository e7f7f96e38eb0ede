"""An image's program in a container of the kernel's own: its root, read-only, as its user, without
any capability.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.ended import Ended, assert_well_said
from tests.image.roots import Image

# Where the files of a test stand in the container, owned by its user: a Secret's and a ConfigMap's
# place.
SETTINGS = "/mnt"
# What a runtime does first; $ROOT is the image. Memory, and an emptyDir on /tmp, are all
# that can be written to.
_START = """
set -e
mount --bind "$ROOT" "$ROOT"
cd "$ROOT"
mount -t proc proc proc
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
mkdir -p dev/shm
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs tmpfs tmp
mount -t tmpfs tmpfs mnt
cp -r "$FILES/." mnt
chown -R "$OWNER" mnt
mount -o remount,ro,bind .
exec chroot . env -i "$@"
"""


def run(
    image: Image, arguments: Sequence[str], *, variables: Mapping[str, str], files: Path
) -> Ended:
    """Start the entrypoint with these arguments, or the image's own where there are none; to its end.

    `files` is a folder that the container has, as a copy, at `SETTINGS`.
    """
    return execute(
        image, [*image.entrypoint, *(arguments or image.command)], variables=variables, files=files
    )


def execute(
    image: Image, command: Sequence[str], *, variables: Mapping[str, str], files: Path
) -> Ended:
    """Start any command in it, to its end."""
    process = begin(image, command, variables=variables, files=files)
    stdout, stderr = process.communicate(timeout=300)
    assert_well_said(stdout + stderr)
    return Ended(process.returncode, stdout, stderr)


def begin(
    image: Image, command: Sequence[str], *, variables: Mapping[str, str], files: Path
) -> "subprocess.Popen[str]":
    """Start any command in it. Its process has one child, which is the command."""
    user, group = image.user.split(":")
    environment = {"HOME": _home(image, user), **image.environment, **variables}
    rights = [f"--reuid={user}", f"--regid={group}", "--clear-groups"]
    rights += ["--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return subprocess.Popen(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _START, "sh"),
            *(f"{name}={value}" for name, value in environment.items()),
            *("setpriv", *rights, "env", f"--chdir={image.folder}", *command),
        ],
        env={
            "PATH": os.environ["PATH"],
            "ROOT": str(image.root),
            "FILES": str(files),
            "OWNER": image.user,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask_to_end(process: "subprocess.Popen[str]") -> int:
    """SIGTERM to the command itself, as a kubelet sends it; its exit code."""
    (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    return process.wait(60)


def _home(image: Image, user: str) -> str:
    accounts = (line.split(":") for line in (image.root / "etc/passwd").read_text().splitlines())
    return next(account[5] for account in accounts if account[2] == user)
