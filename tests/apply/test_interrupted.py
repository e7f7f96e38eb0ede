"""A rollout that dies while others' checks run on a node, or while the cluster settles, and whoever
goes on with it.
"""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import node_path
from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import DAEMONSETS, NODES, PODS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.lab.objects import is_ready
from tests.apply.conftest import Rollout, Started, boot, command, lose_hosts
from tests.apply.test_resume import APPLY as WORKERS
from tests.apply.test_resume import stopped_at
from tests.state import annotations, is_cordoned, metadata, node_of, unlock, write
from tests.waiting import wait_until

PREFIX = "checks.example/"


BEFORE = "backed-up.example/ok"
AFTER = "smoke-tested.example/ok"


CHECKS = (
    *("--set", f"gates.hook-prefix={PREFIX}"),
    *("--set", f"gates.before-reboot-annotations={BEFORE}"),
    *("--set", f"gates.after-reboot-annotations={AFTER}"),
)


APPLY = (
    *("apply", "--yes", "-o", "json", "--node", "worker-1", "--set", "waves.health-checks=1"),
    *CHECKS,
)


def node(lab: Lab) -> Json:
    return node_of(lab, "worker-1")


def labels(lab: Lab) -> list[str]:
    return [name for name in node(lab)["metadata"]["labels"] if name.startswith(PREFIX)]


def passes(lab: Lab, check: str) -> None:
    """A check writes its answer."""
    write(lab, "worker-1", "annotations", **{check: "true"})


def resume(lab: Lab) -> tuple[str, ...]:
    return ("resume", "--yes", "-o", "json", *unlock(lab))


def killed_while(lab: Lab, process: "subprocess.Popen[str]", asked: str) -> None:
    wait_until(lambda: labels(lab) == [PREFIX + asked])
    process.kill()
    process.communicate()


def test_it_is_gone_on_with_and_asks_anew(started: Started, tmp_path: Path) -> None:
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
    assert labels(lab) == []
    assert score.reboots["worker-1"] == 1
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.budgets_broken == ()


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


EXAMPLE_BEFORE = "checks.example/before-reboot"
EXAMPLE_AFTER = "checks.example/after-reboot"


def daemon_set(when: str) -> dict[str, Any]:
    documents = yaml.safe_load_all(
        (EXAMPLES / f"{when}-reboot-check.yaml").read_text(encoding="utf-8")
    )
    (found,) = (document for document in documents if document["kind"] == "DaemonSet")
    return dict(found)


def answer_of(pod: dict[str, Any]) -> str:
    """The annotation that its last init container would write with kubectl."""
    *_, last = pod["spec"]["initContainers"]
    assert last["args"][:2] == ["annotate", "node"]
    answers: list[str] = [
        argument.removesuffix("=true") for argument in last["args"] if argument.endswith("=true")
    ]
    return answers[0]


@dataclass(frozen=True, order=True)
class Ran:
    """A check, and how its node stood: in a rollout of two nodes that are evicted from, and
    rebooted, one by one.
    """

    node: str
    answer: str
    cordoned: bool
    reboots: int


@contextmanager
def kubelets(lab: Lab, ran: list[Ran]) -> Iterator[None]:
    """The lab runs no containers: what those of the checks' pods would do is done here, once a pod
    is there.
    """
    over = threading.Event()
    api = connect(lab.kubeconfig, None)

    def run() -> None:
        done: set[str] = set()
        while not over.wait(0.05):
            for pod in lab.call(lambda: list(lab.store.items(PODS))):
                bound = pod["spec"].get("nodeName")
                if (
                    bound
                    and "-reboot-check-" in pod["metadata"]["name"]
                    and pod["metadata"]["uid"] not in done
                ):
                    done.add(pod["metadata"]["uid"])
                    answer = answer_of(pod)
                    reboots = lab.scoreboard().reboots[bound]
                    ran.append(Ran(bound, answer, is_cordoned(lab, bound), reboots))
                    api.patch(node_path(bound), {"metadata": {"annotations": {answer: "true"}}})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_example_checks_run_on_each_node_around_its_reboot(
    started: Started, rollout: Rollout
) -> None:
    """Before its drain, and before its uncordon; neither their labels nor their answers are left."""
    lab = started("default", 7)
    for when in ("before", "after"):
        lab.call(partial(lab.store.create, DAEMONSETS, with_defaults(DAEMONSETS, daemon_set(when))))
    ran: list[Ran] = []
    asked = (
        *("--set", f"gates.before-reboot-annotations={EXAMPLE_BEFORE}"),
        *("--set", f"gates.after-reboot-annotations={EXAMPLE_AFTER}"),
    )
    names = ("worker-1", "worker-2")
    with kubelets(lab, ran):
        ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", ",".join(names), *asked)
    assert ended.code == 0, ended.stderr
    around = [(EXAMPLE_BEFORE, True, 0), (EXAMPLE_AFTER, True, 1)]
    assert sorted(ran) == sorted(Ran(name, *each) for name in names for each in around)
    for name in names:
        assert not {EXAMPLE_BEFORE, EXAMPLE_AFTER} & annotations(lab, name).keys()
        assert not [label for label in metadata(lab, name, "labels") if label.endswith("-reboot")]
    assert lab.scoreboard().clean


# What was well before an interruption has to be so again before the rollout goes any further.


BYSTANDER = "cp-3"
SETTLING = ("--max-unavailable", "2", "--canary", "1", "--settle-timeout", "3s")


def cut_power(lab: Lab, node: str) -> None:
    """For good; and the cluster has noticed."""
    lab.call(lab.machines[node].cut_power)
    wait_until(lambda: node in not_ready(lab))


def not_ready(lab: Lab) -> list[str]:
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    return [node["metadata"]["name"] for node in nodes if not is_ready(node)]


def test_what_was_well_before_the_interruption_has_to_be_so_again(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """A wave is under way when the process dies, and a node with it: measured anew, that would be
    nothing new.
    """
    lab = started("default", 6)
    node = stopped_at(lab, tmp_path, "draining", *SETTLING)
    cut_power(lab, BYSTANDER)
    ended = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert ended.summary["succeeded"] == [node]
    assert f"node {BYSTANDER} is no longer Ready" in next(iter(ended.summary["reasons"].values()))


def test_between_two_waves_too_and_going_on_once_more_accepts_it(
    started: Started, rollout: Rollout, tmp_path: Path
) -> None:
    """The first node boots only once the cluster has noticed what else is lost: its wave never
    settles.
    """
    lab = started("default", 6)
    lab.call(lambda: lose_hosts(lab))
    process = command(lab, tmp_path, *WORKERS, *SETTLING)
    assert process.stdout is not None
    for written in process.stdout:
        line = json.loads(written)
        if line.get("phase") == "rebooting" and BYSTANDER not in not_ready(lab):
            cut_power(lab, BYSTANDER)
            boot(lab, line["node"])
        if line["type"] == "wave_settling" and BYSTANDER in line["waiting_for"]:
            break
    process.kill()
    process.communicate()
    first = rollout(lab, "resume", "--yes", "-o", "json", *unlock(lab)).ends(4)
    assert first.summary["succeeded"] == []
    why = next(iter(first.summary["reasons"].values()))
    assert f"after the interruption the cluster did not settle within 3s: node {BYSTANDER}" in why
    second = rollout(lab, "resume", "--yes", "-o", "json")
    assert second.summary["succeeded"]
    assert lab.scoreboard().cordons_left == ()
