"""What `rollout lab up` prints to be typed next: every line of every scenario is typed, into the
real program.
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.hostplan import scale, with_fleetlock
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario, steps_of
from rollout.lab.scenarios import scenario_names
from tests.ended import Ended, answered, end_of, invoked, start

# A smaller one shows the same.
SMALLER = {"large": 30, "typical-large": 30}
# Of a server that fails one request in ten.
MOST_TRIES = 5
# Where a command's own answer is that something is wrong, which is what the scenario is for.
TROUBLE = {
    "doctor": (ExitCode.ERROR, "failed."),
    "check-update": (ExitCode.PARTIAL, ""),
    "plan": (ExitCode.BLOCKED, "Blocked: "),
}


def typed(home: Path, lab: Lab, words: list[str]) -> Ended:
    """As at a terminal, at which any question is answered with no."""
    if words[0] in ("status", "plan", "doctor"):
        return invoked(home, lab.environment, words)
    return answered(home, lab.environment, words, "no")


def is_answered(words: list[str], ended: Ended) -> bool:
    """Whether it did what it is for: a plan that nothing blocks comes to its question."""
    code, word = TROUBLE.get(words[0], (ExitCode.OK, ""))
    return ended.code in (ExitCode.OK, ExitCode.DECLINED) or (
        ended.code == code and word in ended.stdout
    )


def asked_by_kubectl(lab: Lab, words: list[str]) -> None:
    """Again where the scenario's server refused, as a person does: kubectl asks once, and the
    refusal is meant.
    """
    refusals: list[bytes] = []
    for _ in range(MOST_TRIES if lab.scenario.api_faults else 1):
        done = subprocess.run(
            words, env={**os.environ, **lab.environment}, capture_output=True, check=False
        )
        if done.returncode == 0:
            return
        refusals.append(done.stderr)
    pytest.fail(repr(refusals))


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", sorted({*scenario_names()} - {"zincati"}))
def test_each_step_of_a_scenario_works_as_it_is_printed(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    chosen = scale(scenario, SMALLER[name]) if name in SMALLER else scenario
    steps = [shlex.split(step, comments=True) for step in steps_of(scenario)]
    assert steps
    with Lab(chosen, directory=tmp_path / "lab", speed=30) as lab:
        for program, *words in steps:
            if program == "rollout":
                ended = typed(tmp_path, lab, words)
                assert is_answered(words, ended), (words, ended.code, ended.stderr)
            elif kubectl := shutil.which(program):
                asked_by_kubectl(lab, [kubectl, *words])


def test_where_hosts_ask_the_server_is_the_first_step(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    scenario = with_fleetlock(load_scenario("zincati"), f"http://127.0.0.1:{port}/")
    serve, *rest = [shlex.split(step, comments=True)[1:] for step in steps_of(scenario)]
    with Lab(scenario, directory=tmp_path / "lab", speed=30) as lab:
        server = start(tmp_path, lab.environment, serve)
        assert server.stderr is not None
        assert any("serving FleetLock at" in line for line in server.stderr)
        for words in rest:
            ended = typed(tmp_path, lab, words)
            assert ended.code == ExitCode.OK, ended.stderr
        server.send_signal(signal.SIGINT)
        assert end_of(server).code in (ExitCode.OK, ExitCode.INTERRUPTED)


def test_they_are_printed_with_the_env(tmp_path: Path) -> None:
    """Pasted into a shell, which has a `rollout`, one after the other."""
    process = start(
        tmp_path, {}, ("lab", "up", "--scenario", "leftovers", "--dir", str(tmp_path / "my lab"))
    )
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip("\n"))
        if "addresses and ports are in" in line:
            break
    commands = [line.strip() for line in said if line.startswith("    ")]
    assert tuple(commands[1:]) == steps_of(load_scenario("leftovers"))
    try:
        status = (
            f'rollout() {{ {shlex.quote(sys.executable)} -m rollout "$@"; }}; {commands[0]};'
            f" {commands[1]}"
        )
        shown = subprocess.run(
            ["bash", "-c", status],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        assert (shown.returncode, "13 nodes: " in shown.stdout) == (0, True), (
            shown.stdout + shown.stderr
        )
    finally:
        process.terminate()
        end_of(process)
