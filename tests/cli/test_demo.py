"""The demo at the demo's speed."""

import re
import time
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import Command


@pytest.mark.exhaustive
def test_estimates_and_time_outs_are_as_much_shorter_as_the_lab_is_faster(command: Command, home: Path) -> None:
    began = time.monotonic()
    ended = command("demo", "--scenario", "drain-hangs", "--speed", "60")
    assert ended.code == ExitCode.PARTIAL
    assert "drain 10s, back 15s, Ready 10s" in ended.stdout
    (estimate,) = set(re.findall(r"It takes about (\S+?):", ended.stdout))
    assert re.fullmatch(r"\d\ds|\ds", estimate)
    assert "after --drain-timeout 10s" in ended.stdout
    # what has just failed is not proposed before what held it is looked at
    ending = (
        r"^See: kubectl describe pod -n shop stubborn-\S+; once nothing holds its pods: rollout resume --retry-failed$"
    )
    assert re.search(ending, ended.stdout, re.MULTILINE)
    assert "Go on: " not in ended.stdout
    # ten minutes it would wait for the pod that never ends, at an operator's time-outs
    assert time.monotonic() - began < 100
    assert not list(home.rglob("*.jsonl"))
    # and its last lines lead on, to the same scenario
    assert "rollout lab up --scenario drain-hangs\n" in ended.stdout
    assert ended.stdout.splitlines()[-1].endswith("rollout doctor")


def test_a_scenario_is_planned_with_its_own_flags(command: Command) -> None:
    """Else hosts that say otherwise than by update_engine that they need a reboot would show nothing."""
    ended = command("demo", "--scenario", "sources", "--speed", "60")
    sources = "--set detect.sources=update-engine,annotation,reboot-required,rpm-ostree"
    shown = " ".join(ended.stdout.split())
    assert f"$ rollout status {sources} NODE" in shown
    assert f"$ rollout plan {sources} --max-unavailable 3 --out " in shown
    assert "9 nodes of 12 wait for a reboot." in ended.stdout
    # one of them boots its old deployment again
    assert ended.code == ExitCode.PARTIAL
    assert "worker-7 failed (rolled-back" in ended.stdout
    # and of those that were to reboot, and not to change, nothing of the kind is said
    assert "ebooted, and on its old version: worker-7." in ended.stdout
