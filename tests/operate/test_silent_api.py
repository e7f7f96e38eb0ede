"""An API server that accepts connections and never answers: a run waits for it once, and not again at each step."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.ended import Ended, end_of
from tests.operate.conftest import ONCE, RULES, assert_all_done

pytestmark = pytest.mark.exhaustive

Start = Callable[[str, int], Lab]

# The real program but for its limits, which are minutes: an answer is awaited for a second, an outage for twelve.
PATIENCE = 12.0
HURRIED = f"""
import sys
from functools import partial
from rollout.adapters.kube import api
from rollout.cli.stages import execute
from rollout.cli.main import run
api.connect.__kwdefaults__.update(timeouts=api.Timeouts(read=1.0))
execute.RunOptions = partial(execute.RunOptions, api_patience={PATIENCE})
sys.exit(run(sys.argv[1:]))
"""
# a pod that has just moved holds no budget up for long
AGAIN = {
    "operate": (*ONCE, "--allow", "blocked"),
    "apply": ("resume", "--yes", "--retry-failed", "--allow", "blocked", "-o", "json"),
}


def until_silent(lab: Lab, home: Path, phase: str, *arguments: str) -> tuple[Ended, float]:
    """A command while whose nodes are in this phase the API server falls silent, and how many seconds it goes on."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(Path.cwd()), **lab.environment}
    process = subprocess.Popen(
        [sys.executable, "-c", HURRIED, *arguments, "--drain-timeout", "6s", "--set", "lock.duration=5s"],
        env=environment,
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for written in process.stdout:
        line = json.loads(written)
        if line["type"] == "step" and line["phase"] == phase:
            lab.inflict(ApiFault(answer=FaultAnswer.HANG))
            break
    silent = time.monotonic()
    return end_of(process), time.monotonic() - silent


@pytest.mark.timeout(300)
@pytest.mark.parametrize("phase", ["draining", "rebooting"])
@pytest.mark.parametrize("words", ["operate --once", "apply --yes"])
def test_it_is_waited_for_once(started: Start, tmp_path: Path, words: str, phase: str) -> None:
    lab = started("default", 4)
    ended, seconds = until_silent(lab, tmp_path, phase, *words.split(), *RULES)
    assert ended.code == ExitCode.PARTIAL, ended.stderr
    assert ended.summary["failed"]
    assert seconds < 3.5 * PATIENCE
    lab.behave()
    again = end_of(command(lab, tmp_path, *AGAIN[words.split(maxsplit=1)[0]]))
    assert again.code == ExitCode.OK, again.stderr
    assert_all_done(lab)
