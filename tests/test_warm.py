"""What is started warm does the same as what is started cold."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.cli.main import program
from rollout.lab.lab import Lab
from tests.cli.screens import shown
from tests.ended import end_of, start, start_cold, start_on_terminal
from tests.warm import READ_LATE, ROOT, Start, Warm

pytestmark = pytest.mark.slow
STARTS = (start_cold, start)
JOURNAL = Path(__file__).parent / "cli" / "journal.jsonl"
# A plan's name, and times.
OWN = re.compile(r"\b[0-9a-f]{16}\b|\d\d:\d\d:\d\d")


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Whoever connects to it waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        yield server


@pytest.fixture
def waiting(silent: socket.socket, tmp_path: Path) -> dict[str, str]:
    """The environment of a program that waits for its API."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}], "
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{silent.getsockname()[1]}'}}}}]}}"
    )
    return {"KUBECONFIG": str(file)}


def open_files(pid: int) -> list[str]:
    """By number, what a process has open; of its sockets and pipes no more than that they are."""
    folder = Path(f"/proc/{pid}/fd")
    return sorted(f"{entry.name}:{str(entry.readlink()).partition('[')[0]}" for entry in folder.iterdir())


# What each command says where nothing is pending and nothing stands.
ARGUMENTS = [
    *(["plan"], ["apply", "--yes"], ["resume", "--yes"], ["abort", "--yes"], ["status", "-o", "json"], ["history"]),
    *(["check-update", "--node", "worker-1"], ["doctor"], ["inventory", "--list"], ["lab", "scenarios"]),
    *(["operate", "--once"], ["pause", "--node", "worker-9"], ["unpause"], ["release", "1.2.3"]),
    *(["plan", "nowhere"], ["report"], ["known-hosts", "--host-key-checking", "off"], ["manifests", "rbac"]),
    *(["fleetlock", "status"], ["completion", "zsh"], ["help", "plan"]),
    *(["drain", "worker-1"], ["reboot"], ["demo", "--help"], ["plan", "--nope"], ["--version"], []),
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_it_says_the_same(start_lab: Callable[..., Lab], tmp_path: Path, arguments: list[str]) -> None:
    lab = start_lab("idle", nodes=3)
    cold, warm = (end_of(way(tmp_path, lab.environment, arguments)) for way in STARTS)
    assert (warm.code, OWN.sub("", warm.stdout), OWN.sub("", warm.stderr)) == (
        *(cold.code, OWN.sub("", cold.stdout), OWN.sub("", cold.stderr)),
    )


@pytest.mark.parametrize(
    "variables",
    [
        *({"TERM": "xterm-256color", "TZ": "Asia/Kolkata"}, {"TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "90"}),
        *({"TERM": "dumb", "COLUMNS": "60"}, {"LC_ALL": "C.UTF-8", "TERM": "xterm", "LINES": "10"}),
    ],
    ids=str,
)
def test_it_shows_the_same_on_a_terminal(
    start_lab: Callable[..., Lab], tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, colours = start_lab("mixed"), re.compile(rb"\x1b\[[\d;]+m")
    for words in (("status",), ("plan",), ("history", "--journal", str(JOURNAL))):
        ways = []
        for way in ("1", ""):
            monkeypatch.setenv("COLD_STARTS", way)
            screen = shown(tmp_path, {**lab.environment, **variables}, words, 100)
            ways.append((screen.code, screen.steady, bool(colours.search(screen.octets))))
        assert ways[0] == ways[1]


def test_on_a_terminal_it_has_a_session_of_its_own(
    silent: socket.socket, waiting: dict[str, str], tmp_path: Path
) -> None:
    leader, follower = pty.openpty()
    process = start_on_terminal(tmp_path, {**waiting, "TERM": "xterm"}, ["status"], follower)
    terminal = Path(os.ttyname(follower))
    os.close(follower)
    assert isinstance(process, Warm)
    with silent.accept()[0]:
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        streams = {Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)}
        assert streams == {terminal}
        process.kill()
    assert process.wait(60) == -signal.SIGKILL
    os.close(leader)


# Says which variables are read while the program is loaded.
READS = """
import os, sys
class Read(type(os.environ)):
    def __getitem__(self, name):
        names.add(name)
        return super().__getitem__(name)
    def __contains__(self, name):
        names.add(name)
        return super().__contains__(name)
names = set()
os.environ.__class__ = Read
from tests import warm
warm.load()
print(*names)
"""


def test_what_it_may_be_given_is_not_read_while_it_is_loaded() -> None:
    """But for what is a default there that the program never uses: it says where kubeconfig and home are."""
    words = [sys.executable, "-c", READS]
    read = subprocess.run(words, cwd=ROOT, env={}, capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in read if name.startswith(READ_LATE)} <= {"HOME", "KUBECONFIG", "PATH"}
    assert "KUBECONFIG" in read


def test_each_command_is_started_both_ways() -> None:
    assert {arguments[0] for arguments in ARGUMENTS if arguments} >= set(program().commands)


def test_nothing_of_the_one_it_is_forked_from_is_open(
    silent: socket.socket, waiting: dict[str, str], tmp_path: Path
) -> None:
    opened = []
    for way in (*STARTS, start):
        process = way(tmp_path, waiting, ["status"])
        with silent.accept()[0]:
            opened.append(open_files(process.pid))
            process.kill()
            process.communicate()
        assert isinstance(process, Warm) == (way is start)
    assert opened[1:] == [opened[0]] * 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_by_a_signal_as_any_other(
    silent: socket.socket, waiting: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    ends = []
    for way in STARTS:
        process = way(tmp_path, waiting, ["status"])
        with silent.accept()[0]:
            assert process.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
            process.send_signal(number)
            ends.append((*process.communicate(timeout=60), process.returncode))
    assert ends[0] == ends[1]


def test_what_python_reads_while_it_starts_is_read_by_a_start_of_its_own(tmp_path: Path) -> None:
    assert Start(["plan"], {"HOME": "/", "ROLLOUT_NODE": "a"}, "/").can_be_warm
    assert not Start(["plan"], {"HOME": "/", "PYTHONUTF8": "1"}, "/").can_be_warm
    assert Start(["plan"], {"LC_ALL": "C.UTF-8"}, "/").can_be_warm
    assert not Start(["plan"], {"LC_ALL": "C"}, "/").can_be_warm
    assert not Start(["plan"], {"ROLLOUT_NODE": "a" * 1_000_000}, "/").can_be_warm
    with start(tmp_path, {"LANG": "C"}, ["--version"]) as process:
        assert not isinstance(process, Warm)
