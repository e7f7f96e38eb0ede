"""What shells ask the program while a line is typed: by their environment, and by a real bash."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended, end_of, start

Complete = Callable[..., Sequence[str]]
# Of a machine that does much else; what is awaited is `hang`, which without a limit lasts for half a minute.
SECONDS = 12
PATIENT = {"_ROLLOUT_COMPLETE_SECONDS": "60"}


def asked(home: Path, line: str, lab: Lab | None, shell: str = "bash", **variables: str) -> Ended:
    """What the program answers to a shell, of which the last word is what was begun."""
    words = line.split(" ")
    by_shell = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
    }[shell]
    environment = {
        **(lab.environment if lab else {}),
        **by_shell,
        "_ROLLOUT_COMPLETE": f"complete_{shell}",
        **variables,
    }
    return end_of(start(home, environment, ()))


@pytest.fixture
def complete(home: Path) -> Complete:
    """Ask as bash does; nothing but completions is ever said.

    Where there is something to complete, it is waited for: a machine may be busy. `hasty` is how shells ask.
    """

    def ask(line: str, lab: Lab | None = None, *, hasty: bool = False, **variables: str) -> Sequence[str]:
        ended = asked(home, line, lab, **({} if hasty else PATIENT), **variables)
        assert ended.stderr == ""
        return ended.stdout.split()

    return ask


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=4, speed=30)


@pytest.mark.parametrize(
    "line",
    [
        *("status --node ", "plan --exclude ", "plan --explain ", "pause ", "fleetlock release "),
        "apply --node worker-1 --node ",
    ],
)
def test_nodes(line: str, complete: Complete, lab: Lab) -> None:
    assert "worker-1" in complete(f"rollout {line}", lab)
    assert complete(f"rollout {line}worker-2", lab) == ["worker-2"]


def test_nodes_of_the_kubeconfig_that_the_line_names(complete: Complete, lab: Lab) -> None:
    assert complete(f"rollout status --kubeconfig {lab.kubeconfig} --node cp-") == ["cp-1"]


def test_contexts(complete: Complete, lab: Lab, home: Path) -> None:
    (home / "two").write_text(
        "contexts: [{name: prod-eu, context: {}}, {name: prod-us, context: {}}, {name: dev, context: {}}]"
    )
    assert complete("rollout plan --context prod-", KUBECONFIG=str(home / "two")) == ["prod-eu", "prod-us"]


def test_files_are_left_to_the_shell(complete: Complete) -> None:
    assert [complete(f"rollout {line} ") for line in ("apply", "plan", "plan --out", "status --config")] == [[]] * 4


@pytest.mark.parametrize("line", ["status --node ", "pause "])
def test_an_api_server_that_does_not_answer_completes_nothing_and_keeps_nobody(
    line: str, complete: Complete, lab: Lab
) -> None:
    lab.inflict(ApiFault(answer=FaultAnswer.HANG))
    began = time.monotonic()
    assert complete(f"rollout {line}", lab, hasty=True) == []
    assert time.monotonic() - began < SECONDS


def test_a_real_bash_completes_with_the_printed_script(command: Command, lab: Lab, home: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = command("completion", "bash")
    assert script.code == 0
    program = home / "bin" / "rollout"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rollout "$@"\n')
    program.chmod(0o755)
    ask = (
        f"{script.stdout}\nCOMP_WORDS=(rollout status --node worker-)\nCOMP_CWORD=3\nCOMP_LINE='rollout status --node"
        ' worker-\'\n_rollout_completion rollout worker- --node\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", ask],
        env={"PATH": path, "HOME": str(home), **lab.environment, **PATIENT},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["worker-1", "worker-2", "worker-3"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_program(shell: str, command: Command) -> None:
    printed = command("completion", shell)
    assert printed.code == 0
    assert "_ROLLOUT_COMPLETE" in printed.stdout
