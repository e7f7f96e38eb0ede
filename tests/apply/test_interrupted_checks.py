"""A rollout that dies while others' checks run on a node: the label that asks for them is on the cluster, and ours."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import node_path
from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import DAEMONSETS, PODS, VOLUMEATTACHMENTS
from rollout.lab.api.store import Json
from rollout.lab.lab import Lab
from rollout.lab.scenario import Workload, WorkloadKind, load_scenario
from rollout.lab.world.host import Timings
from tests.apply.conftest import Rollout, Started, command
from tests.state import node_of, unlock, write
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
    assert (labels(lab), score.reboots["worker-1"]) == ([], 1)
    assert (score.cordons_left, score.annotations_left, score.budgets_broken) == ((), {}, ())


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


BEFORE_OF_EXAMPLE_CHECKS, AFTER_OF_EXAMPLE_CHECKS = "checks.example/before-reboot", "checks.example/after-reboot"


def daemon_set(when: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((EXAMPLES / f"{when}-reboot-check.yaml").read_text(encoding="utf-8"))
    (found,) = (document for document in documents if document["kind"] == "DaemonSet")
    return dict(found)


def answer_of(pod: dict[str, Any]) -> str:
    """The annotation that its last init container would write with kubectl."""
    *_, last = pod["spec"]["initContainers"]
    assert last["args"][:2] == ["annotate", "node"]
    answers: list[str] = [argument.removesuffix("=true") for argument in last["args"] if argument.endswith("=true")]
    return answers[0]


@contextmanager
def kubelets(lab: Lab, ran: list[tuple[str, str]]) -> Iterator[None]:
    """The lab runs no containers: what those of the checks' pods would do is done here, once a pod is there."""
    over, api = threading.Event(), connect(lab.kubeconfig, None)

    def run() -> None:
        done: set[str] = set()
        while not over.wait(0.05):
            for pod in lab.call(lambda: list(lab.store.items(PODS))):
                bound = pod["spec"].get("nodeName")
                if bound and "-reboot-check-" in pod["metadata"]["name"] and pod["metadata"]["uid"] not in done:
                    done.add(pod["metadata"]["uid"])
                    ran.append((bound, answer_of(pod)))
                    api.patch(node_path(bound), {"metadata": {"annotations": {answer_of(pod): "true"}}})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_example_checks_run_on_each_node_around_its_reboot(started: Started, rollout: Rollout) -> None:
    lab = started("default", 7)
    for when in ("before", "after"):
        lab.call(partial(lab.store.create, DAEMONSETS, with_defaults(DAEMONSETS, daemon_set(when))))
    ran: list[tuple[str, str]] = []
    before, after = BEFORE_OF_EXAMPLE_CHECKS, AFTER_OF_EXAMPLE_CHECKS
    asked = ("--set", f"gates.before-reboot-annotations={before}", "--set", f"gates.after-reboot-annotations={after}")
    with kubelets(lab, ran):
        ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", "worker-1", "--node", "worker-2", *asked)
    assert ended.code == 0, ended.stderr
    assert sorted(ran) == sorted(
        (node, answer)
        for node in ("worker-1", "worker-2")
        for answer in (AFTER_OF_EXAMPLE_CHECKS, BEFORE_OF_EXAMPLE_CHECKS)
    )
    assert lab.scoreboard().clean


# The last look before a reboot waits, within bounds, for volumes to detach.


def test_what_a_node_has_attached_is_detached_before_its_host_goes_down(started: Started, rollout: Rollout) -> None:
    disk = Workload(kind=WorkloadKind.DEPLOYMENT, name="disk", volume_in={"kubernetes.io/os": "linux"})
    # two minutes: some seconds here, long after the drain has ended
    changes = {"workloads": (disk,), "timings": Timings(volume_detach=120)}
    lab = started(msgspec.structs.replace(load_scenario("default"), **changes), 3)

    def attached() -> list[str]:
        return [str(one["spec"]["nodeName"]) for one in lab.call(lambda: lab.store.items(VOLUMEATTACHMENTS))]

    (node,) = attached()
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", node)
    assert ended.code == 0, ended.stderr
    steps = [line["detail"] for line in ended.lines if line["type"] == "step"]
    assert "waiting for 1 volumes to detach" in steps
    assert "is still attached" not in ended.stderr
    assert node not in attached()
