"""The program on macOS and on Windows, as far as it can be shown on Linux: with all hidden that
those do not have.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import TINY, Command
from tests.conftest import StartLab

# Python imports it at its start, before anything else. What it takes away is marked "Availability:
# Linux" in Python's documentation, or missing on macOS there.
MACOS = """
import errno, fcntl, os, selectors, signal, socket, sys, sysconfig, time, types

sysconfig.get_config_vars()  # in a file of this system's name
sys.platform = "darwin"
# what Python has on macOS alone, for the proxies of its system settings
proxies = types.ModuleType("_scproxy")
proxies._get_proxies = proxies._get_proxy_settings = dict
sys.modules["_scproxy"] = proxies

GONE = {
    os: '''O_PATH O_TMPFILE O_NOATIME O_DIRECT O_LARGEFILE O_RSYNC memfd_create pidfd_open sched_getaffinity eventfd
        sched_setaffinity splice getrandom posix_fadvise posix_fallocate setresuid getresuid copy_file_range pipe2
        accept4 getxattr setxattr unshare setns fdatasync''',
    time: "CLOCK_BOOTTIME CLOCK_TAI clock_settime",
    signal: "SIGRTMIN SIGRTMAX SIGPWR SIGSTKFLT SIGPOLL SIGCLD sigtimedwait sigwaitinfo pidfd_send_signal",
    socket: '''TCP_KEEPIDLE TCP_USER_TIMEOUT TCP_QUICKACK TCP_CORK TCP_DEFER_ACCEPT AF_NETLINK AF_PACKET AF_VSOCK
        SO_BINDTODEVICE SO_PEERCRED SO_MARK SOCK_CLOEXEC SOCK_NONBLOCK''',
    fcntl: "F_SETPIPE_SZ F_ADD_SEALS F_NOTIFY F_OFD_SETLK",
}
for module, names in GONE.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
selectors.DefaultSelector = selectors.PollSelector
for name in ("spwd", "ossaudiodev"):
    sys.modules[name] = None


def as_on_macos(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/", "/dev/shm/")):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", arguments[0])
    if event == "socket.bind" and str(arguments[1][0]).startswith("127.") and arguments[1][0] != "127.0.0.1":
        raise OSError(errno.EADDRNOTAVAIL, "Can't assign requested address")


sys.addaudithook(as_on_macos)
"""
WINDOWS = """
import os, signal, sys

sys.platform = "win32"
for name in ("fcntl", "pwd", "grp", "termios", "tty", "resource", "syslog"):
    sys.modules[name] = None
for name in ("geteuid", "getuid", "killpg", "fork", "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "fchmod"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGTSTP", "pthread_kill"):
    delattr(signal, name)
"""


def hiding(folder: Path, script: str) -> dict[str, str]:
    """The environment of a program from which this script hides things before it starts."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(script, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def macos(tmp_path: Path) -> dict[str, str]:
    return hiding(tmp_path / "macos", MACOS)


def test_plan_and_apply_need_nothing_of_linux(
    start_lab: StartLab, command: Command, macos: dict[str, str]
) -> None:
    lab = start_lab(TINY)
    command("plan", "--out", "my.plan", lab=lab, variables=macos).ends(0)
    ended = command("apply", "my.plan", "-o", "json", lab=lab, variables=macos).ends(0)
    assert len(ended.summary["succeeded"]) == 3


@pytest.mark.exhaustive
def test_the_demo_needs_nothing_of_linux(command: Command, macos: dict[str, str]) -> None:
    """The lab as well: each host has a port of 127.0.0.1, as macOS has no other loopback address."""
    ended = command("demo", "--scenario", TINY, "--speed", "30", variables=macos).ends(0)
    assert "Clean: no pods were killed" in ended.stdout


def test_windows_is_told_of_wsl(command: Command, tmp_path: Path) -> None:
    ended = command("status", variables=hiding(tmp_path / "windows", WINDOWS)).ends(ExitCode.ERROR)
    assert ended.stderr.splitlines()[0].startswith(
        "rollout: error: rollout does not run on Windows itself"
    )
    assert ended.stderr.splitlines()[1].startswith("hint: run it in WSL")


def test_the_hidden_names_are_hidden(macos: dict[str, str]) -> None:
    """Else the tests above would show nothing."""
    script = (
        "import os, sys, time; print(sys.platform, hasattr(os, 'O_PATH'), hasattr(time,"
        " 'CLOCK_BOOTTIME'))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **macos},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["darwin", "False", "False"]
