"""Credentials and rights that end in mid-run: whoever replaces them finds the rollout where it was."""

from collections.abc import Callable
from pathlib import Path

import yaml

from rollout.lab.api.access import Denial
from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.apply.test_resume import APPLY, assert_finished
from tests.waiting import wait_until

Start = Callable[[str, int], Lab]


def refused(lab: Lab, status: int) -> int:
    return sum(1 for request in lab.call(lambda: list(lab.api.requests)) if request.status == status)


def use_token(kubeconfig: Path, token: str) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    kubeconfig.write_text(yaml.safe_dump(config))


def test_a_token_that_is_replaced_in_mid_run_is_waited_for(started: Start, tmp_path: Path) -> None:
    lab = started("default", 5)
    process = command(lab, tmp_path, *APPLY)
    assert process.stdout is not None
    next(line for line in process.stdout if '"draining"' in line)
    lab.call(lambda: lab.api.access.replace_tokens({"another": "lab-admin"}))
    wait_until(lambda: refused(lab, 401) > 3)
    use_token(lab.kubeconfig, "another")
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "waiting for the API server: what the API server has accepted before, it does not accept now" in stdout
    assert_finished(lab)


def test_roles_that_are_made_anew_in_mid_run_cost_no_node_its_turn(started: Start, tmp_path: Path) -> None:
    lab = started("default", 5)
    process = command(lab, tmp_path, *APPLY)
    assert process.stdout is not None
    # most of them have not been used by then, and only been asked about
    next(line for line in process.stdout if '"draining"' in line)
    gone = {Denial("*", resource) for resource in ("nodes", "pods", "pods/eviction", "replicasets")}
    lab.call(lambda: lab.api.access.denials.update(gone))
    wait_until(lambda: refused(lab, 403) > 3)
    lab.call(lab.api.access.denials.clear)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    assert "what the API server has allowed before, it does not allow now" in stdout
    assert_finished(lab)
