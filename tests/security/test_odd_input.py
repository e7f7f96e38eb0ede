"""Odd input means what it says, or is refused with a sentence; it never does half of something, or something else.

The mishaps: a selector or a duration that kubectl takes and this program reads otherwise, a name that an Event cannot
have, a message whose characters steer the terminal that shows it. The rule: what an operator, a Node or a host writes
is read by the rules of Kubernetes, Go and the IANA database, and shown without the characters that terminals obey.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import LEASES, NODES
from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.ended import Ended, invoked

TINY = str(Path(__file__).parents[1] / "cli" / "tiny.yaml")
Run = Callable[..., Ended]
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What terminals obey, or that turns the direction of text; ends of lines are ours."""
EVIL = "up\u009b2J\u0085\x7f\u202egnp\u2066.\u200f\u2028\ufeff"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def ended(lab: Lab, *arguments: str) -> Ended:
        return invoked(tmp_path, lab.environment, arguments)

    return ended


def put_on_node(lab: Lab, name: str, part: str, values: dict[str, str]) -> None:
    """Labels or annotations, as an operator puts them."""

    def put() -> None:
        node = lab.store.get(NODES, name)
        assert node is not None
        metadata = node["metadata"]
        lab.store.put(NODES, {**node, "metadata": {**metadata, part: {**(metadata.get(part) or {}), **values}}})

    lab.call(put)


def test_selectors_that_compare_choose_nodes(start_lab: StartLab, run: Run) -> None:
    lab = start_lab(nodes=6)
    for name, cores in (("worker-1", "8"), ("worker-2", "16"), ("worker-3", "1_6")):
        put_on_node(lab, name, "labels", {"cores": cores})
    for selector, expected in (("cores>8", ["worker-2"]), ("cores<17,cores!=16", ["worker-1"]), ("cores > 99", [])):
        ended = run(lab, "status", "-l", selector, "-o", "json")
        assert ended.code == (ExitCode.OK if expected else ExitCode.ERROR), ended.stderr
        assert [node["node"] for node in json.loads(ended.stdout or '{"nodes": []}')["nodes"]] == expected
    # what is judged here, and not by the server, is judged by the same rules
    plan = run(lab, "plan", "--node", "worker-1", "--pod-selector", "cores>8", "-o", "json")
    assert plan.code == ExitCode.OK, plan.stderr
    (node,) = json.loads(plan.stdout)["waves"][0]["nodes"]
    assert (node["evict"], node["leave"] > 0) == (0, True)


@pytest.mark.parametrize(
    "flags",
    [
        ("--selector", f"{'a' * 64}=b"),
        ("--selector", f"a={'b' * 64}"),
        ("--pod-selector", f"a={'b' * 64}"),
        ("--spread-by", "a" * 64),
        ("--selector", "cores>many"),
        ("--window", "02:00 3h localtime"),
        ("--window", "02:00 3h posix/Europe/Berlin"),
    ],
    ids=lambda flags: f"{flags[0]} {flags[1][:20]}",
)
def test_what_no_server_takes_is_refused_by_its_flag(flags: tuple[str, str], tmp_path: Path) -> None:
    ended = invoked(tmp_path, {"KUBECONFIG": "/nowhere"}, ("plan", *flags))
    assert ended.code == ExitCode.USAGE
    assert flags[0] in ended.stderr


def test_nothing_that_a_terminal_obeys_is_printed(start_lab: StartLab, run: Run, tmp_path: Path) -> None:
    """The text comes from whoever may write a Node's annotations, or a Lease."""
    lab = start_lab(nodes=3)
    put_on_node(lab, "worker-1", "annotations", {"node-rollout.dev/last-result": EVIL})
    spec = {"holderIdentity": EVIL, "leaseDurationSeconds": 1}
    lease = {"metadata": {"name": "node-rollout", "namespace": "kube-system"}, "spec": spec}
    lab.call(lambda: lab.store.create(LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease}))
    inventory = run(lab, "inventory", "--list")
    annotations = json.loads(inventory.stdout)["_meta"]["hostvars"]["worker-1"]["rollout_annotations"]
    assert annotations["last-result"] == {"__ansible_unsafe": EVIL}
    doctor = run(lab, "doctor", "-o", "json")
    assert any(EVIL in check["message"] for check in json.loads(doctor.stdout)["checks"])
    text = run(lab, "doctor")
    assert "\\x9b2J" in text.stdout
    for ended in (inventory, doctor, text):
        assert not OBEYED.search(ended.stdout + ended.stderr)
