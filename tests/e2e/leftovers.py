"""What machines leave on the computer that runs them, and its removal: at the end, and at the next beginning.

A run that was killed could not tidy up after itself. Everything of ours bears our name, so that the
next run in the same place finds it: control groups with what still runs in them, mounts, network
links, and nspawn's own folders.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

PREFIX = "rle2e"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_TREES = ("systemd", "unified", "")
_PROPAGATED = Path("/run/systemd/nspawn/propagate")
_LINKS = Path("/sys/class/net")
_PATIENCE = 5.0


def groups_for(name: str) -> list[Path]:
    """A control group in each tree that a systemd inside looks at: two of a hybrid machine, one of
    a modern one.
    """
    found = []
    for tree in _TREES:
        top = _CONTROL_GROUPS / tree
        if (top / "cgroup.procs").exists():
            folder = top / name
            folder.mkdir(exist_ok=True)
            found.append(folder)
    return found


def sweep(name: str) -> None:
    """Remove all that is left of machines whose names begin so: `rle2e3-` are all those of place 3."""
    end_processes(name)
    for target in mounts(name):
        subprocess.run(["umount", "--lazy", target], check=False, capture_output=True)
    for link in links(name):
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True)
    for folder in _PROPAGATED.glob(f"{name}*"):
        shutil.rmtree(folder, ignore_errors=True)
    for group in control_groups(name):
        _remove_group(group)


def forget(container: str) -> None:
    """Remove what an nspawn that has ended leaves in the way of the next one of this name."""
    shutil.rmtree(_PROPAGATED / container, ignore_errors=True)
    subprocess.run(["ip", "link", "delete", f"vb-{container}"], check=False, capture_output=True)


def end_processes(name: str) -> None:
    """Kill what runs in their control groups, and wait until it has gone."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        running = [pid for group in control_groups(name) for pid in _processes(group)]
        if not running:
            return
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def control_groups(name: str) -> list[Path]:
    """Their topmost control groups, in each tree."""
    found = (folder for tree in _TREES for folder in (_CONTROL_GROUPS / tree).glob(f"{name}*"))
    return sorted({folder for folder in found if folder.is_dir()})


def mounts(name: str) -> list[str]:
    """Where their roots are mounted: the overlays bear their names."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [fields[1] for fields in map(str.split, lines) if fields[0].startswith(name)]


def links(name: str) -> list[str]:
    """Their ends of network links, and the bridge of the place."""
    return [link.name for link in _LINKS.iterdir() if link.name.startswith((f"vb-{name}", name))]


def _processes(group: Path) -> Iterator[int]:
    for folder in (group, *_below(group)):
        with contextlib.suppress(OSError):
            yield from map(int, (folder / "cgroup.procs").read_text().split())


def _below(group: Path) -> list[Path]:
    """The control groups inside it, deepest first."""
    found = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
    return [folder for folder in found if folder != group]


def _remove_group(group: Path) -> None:
    """The kernel lets go of a group a moment after its last process."""
    deadline = time.monotonic() + _PATIENCE
    while group.exists() and time.monotonic() < deadline:
        for folder in (*_below(group), group):
            with contextlib.suppress(OSError):
                folder.rmdir()
        if group.exists():
            time.sleep(0.05)
