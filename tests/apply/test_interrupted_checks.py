"""A rollout that dies while others' checks run on a node: the label that asks for them is on the cluster, and ours."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from tests.apply.conftest import command
from tests.waiting import wait_until

PREFIX, RUN = "checks.example/", "node-rollout.dev/run"
BEFORE, AFTER = "backed-up.example/ok", "smoke-tested.example/ok"
CHECKS = (
    "--set",
    f"gates.hook-prefix={PREFIX}",
    "--set",
    f"gates.before-reboot-annotations={BEFORE}",
    "--set",
    f"gates.after-reboot-annotations={AFTER}",
)
APPLY = ("apply", "--yes", "-o", "json", "--node", "worker-1", "--set", "waves.health-checks=1", *CHECKS)


def node(lab: Lab) -> Json:
    found = lab.call(lambda: lab.store.get(NODES, "worker-1"))
    assert found is not None
    return found


def labels(lab: Lab) -> list[str]:
    return [name for name in node(lab)["metadata"]["labels"] if name.startswith(PREFIX)]


def passes(lab: Lab, check: str) -> None:
    """A check writes its answer."""

    def do() -> None:
        found = node_now(lab)
        annotations = {**(found["metadata"].get("annotations") or {}), check: "true"}
        lab.store.put(NODES, {**found, "metadata": {**found["metadata"], "annotations": annotations}})

    lab.call(do)


def node_now(lab: Lab) -> Json:
    found = lab.store.get(NODES, "worker-1")
    assert found is not None
    return found


def resume(lab: Lab) -> tuple[str, ...]:
    lease = lab.call(lambda: lab.store.get(LEASES, "node-rollout", "kube-system"))
    assert lease is not None
    return ("resume", "--yes", "-o", "json", "--force-unlock", lease["metadata"]["annotations"][RUN])


def killed_while(lab: Lab, process: "subprocess.Popen[str]", asked: str) -> None:
    wait_until(lambda: labels(lab) == [PREFIX + asked])
    process.kill()
    process.communicate()


def test_it_is_gone_on_with_and_asks_anew(started: Callable[[str, int], Lab], tmp_path: Path) -> None:
    lab = started("default", 5)
    killed_while(lab, command(lab, tmp_path, *APPLY), "before-reboot")
    passes(lab, BEFORE)  # an answer to somebody who is gone
    process = command(lab, tmp_path, *resume(lab))
    wait_until(lambda: BEFORE not in node(lab)["metadata"]["annotations"])
    passes(lab, BEFORE)
    killed_while(lab, process, "after-reboot")
    assert lab.scoreboard().reboots["worker-1"] == 1
    passes(lab, AFTER)
    process = command(lab, tmp_path, *resume(lab))
    wait_until(lambda: AFTER not in node(lab)["metadata"]["annotations"])
    passes(lab, AFTER)
    _stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 0, stderr
    score = lab.scoreboard()
    assert (labels(lab), score.reboots["worker-1"]) == ([], 1)
    assert (score.cordons_left, score.annotations_left, score.budgets_broken) == ((), {}, ())
