"""The example check DaemonSets of the documents, around a real rollout on the lab."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rollout.adapters.kube.api import connect
from rollout.gather.cluster.snapshot import node_path
from rollout.lab.api.defaulting import with_defaults
from rollout.lab.api.resources import DAEMONSETS, PODS
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
BEFORE, AFTER = "checks.example/before-reboot", "checks.example/after-reboot"


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


def test_the_example_checks_run_on_each_node_around_its_reboot(
    started: Callable[[str, int], Lab], rollout: Rollout
) -> None:
    lab = started("default", 7)
    for when in ("before", "after"):
        lab.call(partial(lab.store.create, DAEMONSETS, with_defaults(DAEMONSETS, daemon_set(when))))
    ran: list[tuple[str, str]] = []
    asked = ("--set", f"gates.before-reboot-annotations={BEFORE}", "--set", f"gates.after-reboot-annotations={AFTER}")
    with kubelets(lab, ran):
        ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", "worker-1", "--node", "worker-2", *asked)
    assert ended.code == 0, ended.stderr
    assert sorted(ran) == sorted((node, answer) for node in ("worker-1", "worker-2") for answer in (AFTER, BEFORE))
    assert lab.scoreboard().clean
