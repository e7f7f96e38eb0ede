"""What is started warm does the same as what is started cold."""

import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rollout.cli.main import program
from rollout.lab.lab import Lab
from tests.ended import end_of, start, start_cold
from tests.warm import Start, Warm

pytestmark = pytest.mark.slow
STARTS = (start_cold, start)
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
    *(["operate", "--once"], ["pause", "--node", "worker-9"], ["unpause"], ["release", "1.2.3"], ["adopt"]),
    *(["show", "nowhere"], ["report"], ["known-hosts", "--host-key-checking", "off"], ["manifests", "rbac"]),
    *(["fleetlock", "status"], ["metrics", "rules"], ["completion", "zsh"], ["version"], ["help", "plan"]),
    *(["drain", "worker-1"], ["reboot"], ["demo", "--help"], ["plan", "--nope"], ["--version"], []),
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_it_says_the_same(start_lab: Callable[..., Lab], tmp_path: Path, arguments: list[str]) -> None:
    lab = start_lab("idle", nodes=3)
    cold, warm = (end_of(way(tmp_path, lab.environment, arguments)) for way in STARTS)
    assert (warm.code, OWN.sub("", warm.stdout), OWN.sub("", warm.stderr)) == (
        *(cold.code, OWN.sub("", cold.stdout), OWN.sub("", cold.stderr)),
    )


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
    assert not Start(["plan"], {"ROLLOUT_NODE": "a" * 1_000_000}, "/").can_be_warm
    with start(tmp_path, {"NO_COLOR": "1"}, ["--version"]) as process:
        assert not isinstance(process, Warm)
