"""A host that is not the Node's machine: one node is drained, and another rebooted under its pods.

A kubelet sets the address that its Node has; `~/.ssh/config` may lead a name to another machine; an
inventory may give two names one address. So the boot ID of whoever answers must be that of the
Node's nodeInfo, and of no other Node: when a plan is made, when a node is begun, in the answer on
whose connection the reboot is sent, and the machine ID after the reboot as well. What is another
machine is `wrong-host`; what a Node does not say is `unknown-status`.
"""

import json
from pathlib import Path

import pytest

from rollout.lab.api.resources import NODES
from rollout.lab.hosts.machine import HostEvent
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout
from tests.conftest import StartLab
from tests.security.hands import at_phase, written
from tests.state import marks_of, node_of

APPLY = ("apply", "--yes", "-o", "json", "--control-plane", "exclude", "--max-unavailable", "2")
ELSEWHERE = "worker-3"


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab("default", nodes=5)


def node_info(lab: Lab, node: str, **changes: str) -> None:
    """What the Node says of its machine, changed; in the lab's loop."""
    found = node_of(lab, node)
    info = {
        key: value for key, value in {**found["status"]["nodeInfo"], **changes}.items() if value
    }
    lab.store.put(NODES, {**found, "status": {**found["status"], "nodeInfo": info}})


def report_address(lab: Lab, node: str, address: str) -> None:
    """What its kubelet says from now on; in the lab's loop."""
    kubelet = lab.world.kubelets.get(node)
    assert kubelet is not None
    kubelet.report_address(address)


def reasons(rollout: Rollout, lab: Lab, *flags: str) -> dict[str, str]:
    """Why nodes are left out of a plan, without those that are by request."""
    ended = rollout(lab, "plan", "-o", "json", "--control-plane", "exclude", *flags).ends(0)
    left_out = (one for one in json.loads(ended.stdout)["excluded"] if one["reason"] != "excluded")
    return {one["node"]: f"{one['reason']}: {one['message']}" for one in left_out}


def judge_untouched(lab: Lab, rollout: Rollout, wrong: set[str], *flags: str) -> None:
    """An apply takes the others, drains none of the wrong ones, and reboots no host under its pods."""
    ended = rollout(lab, *APPLY, *flags)
    others = {f"worker-{number}" for number in range(1, 5)} - wrong
    assert set(ended.summary["succeeded"]) == others, ended.stderr
    score = lab.scoreboard()
    assert {name: score.reboots[name] for name in wrong} == dict.fromkeys(wrong, 0)
    assert score.killed == ()
    assert score.rebooted_undrained == ()
    assert score.cordons_left == ()


def test_a_kubelet_that_reports_the_address_of_another_node(
    start_lab: StartLab, rollout: Rollout
) -> None:
    """Which of two Nodes a machine is that stands behind both nobody can say: neither is touched."""
    lab = start_lab("wrong-address", nodes=5)
    found = reasons(rollout, lab)
    assert set(found) == {"worker-2", "worker-3"}
    assert found["worker-2"].startswith("wrong-host: the host is not this Node's machine")
    assert "the host is not this Node's machine: it is worker-3" in found["worker-2"]
    assert "several Nodes have the same machine: worker-2, worker-3" in found["worker-3"]
    ended = rollout(lab, "doctor", "-o", "json")
    checks = [one for one in json.loads(ended.stdout)["checks"] if one["check"] == "identity"]
    verdicts = {one["subject"]: one["verdict"] for one in checks}
    assert ended.code == 1
    assert verdicts["worker-1"] == "pass"
    assert verdicts["worker-2"] == "fail"
    assert verdicts["worker-3"] == "fail"
    rows = {
        row["node"]: row for row in json.loads(rollout(lab, "status", "-o", "json").stdout)["nodes"]
    }
    assert rows["worker-2"]["reason"].startswith("wrong-host")
    assert rows["worker-2"]["running_version"] == ""
    judge_untouched(lab, rollout, {"worker-2", "worker-3"})


def test_a_kubelet_that_reports_all_of_another_nodes_machine(lab: Lab, rollout: Rollout) -> None:
    """Address, machine ID and boot ID: the two Nodes are refused though only one of them is
    selected.
    """
    other = lab.machines[ELSEWHERE]

    def lie() -> None:
        report_address(lab, "worker-2", other.address)
        node_info(lab, "worker-2", machineID=other.machine_id, bootID=other.boot_id)

    lab.call(lie)
    assert (
        "several Nodes have the same machine: worker-2, worker-3"
        in reasons(rollout, lab, "--node", "worker-2")["worker-2"]
    )


def test_an_ssh_config_that_leads_to_another_host(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    there = lab.machines[ELSEWHERE].address
    wrong = lab.machines["worker-1"].address
    config = written(tmp_path, "config", f"Host worker-1 {wrong}\n  HostName {there}\n")
    found = reasons(rollout, lab, "--ssh-config", str(config))
    assert set(found) == {"worker-1", ELSEWHERE}
    assert found["worker-1"].startswith("wrong-host")
    judge_untouched(lab, rollout, {"worker-1", ELSEWHERE}, "--ssh-config", str(config))


def test_an_inventory_that_gives_two_names_one_address(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    """As behind an address translation, which the Nodes know nothing of."""
    there = lab.machines[ELSEWHERE].address
    lines = [f"worker-{number} ansible_host={there}" for number in (1, 3)]
    lines += [
        f"worker-{number} ansible_host={lab.machines[f'worker-{number}'].address}"
        for number in (2, 4)
    ]
    # A host by one Node's name at another Node's address is refused when it is read: here no Node
    # has that address.
    for number in (1, 3):
        lab.call(lambda number=number: report_address(lab, f"worker-{number}", "198.51.100.7"))  # type: ignore[misc]
    inventory = written(tmp_path, "hosts.ini", "[all]\n" + "\n".join(lines) + "\n")
    found = reasons(rollout, lab, "-i", str(inventory))
    assert {name: why.partition(":")[0] for name, why in found.items()} == dict.fromkeys(
        ("worker-1", "worker-3"), "wrong-host"
    )
    judge_untouched(lab, rollout, {"worker-1", "worker-3"}, "-i", str(inventory))


def test_a_node_that_says_nothing_of_its_boot(lab: Lab, rollout: Rollout) -> None:
    lab.call(lambda: node_info(lab, "worker-1", bootID=""))
    assert reasons(rollout, lab)["worker-1"].startswith(
        "unknown-status: its Node does not identify its machine"
    )
    judge_untouched(lab, rollout, {"worker-1"})


def test_a_kubelet_that_has_not_reported_since_its_hosts_last_boot(
    lab: Lab, rollout: Rollout
) -> None:
    lab.call(lambda: node_info(lab, "worker-1", bootID="00000000-0000-4000-8000-000000000000"))
    found = reasons(rollout, lab)["worker-1"]
    assert found.startswith("unknown-status: its kubelet has not reported since the last boot")
    judge_untouched(lab, rollout, {"worker-1"})


def test_a_plan_that_was_saved_before_the_address_changed(
    lab: Lab, rollout: Rollout, tmp_path: Path
) -> None:
    file = tmp_path / "saved.plan"
    rollout(lab, "plan", "--control-plane", "exclude", "--out", str(file)).ends(0)
    lab.call(lambda: report_address(lab, "worker-1", lab.machines[ELSEWHERE].address))
    ended = rollout(lab, "apply", str(file), "-o", "json")
    assert (ended.code, "the host is not this Node's machine: it is worker-3" in ended.stderr) == (
        5,
        True,
    ), ended.stderr


def test_an_address_that_is_swapped_before_a_node_is_begun(lab: Lab, rollout: Rollout) -> None:
    """The first node's turn has come; meanwhile the second one's host is exchanged for another one."""

    def swap(_node: str) -> None:
        lab.machines["worker-2"].machine_id, lab.machines["worker-3"].machine_id = (
            lab.machines["worker-3"].machine_id,
            lab.machines["worker-2"].machine_id,
        )

    at_phase(lab, "draining", swap, node="worker-1")
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", "worker-1", "--node", "worker-2")
    assert ended.summary["succeeded"] == ["worker-1"], ended.stderr
    assert ended.summary["skipped"] == ["worker-2"]
    assert lab.scoreboard().reboots["worker-2"] == 0


def test_a_host_that_is_exchanged_after_the_drain_is_not_rebooted(
    lab: Lab, rollout: Rollout
) -> None:
    """In the answer on whose connection the reboot would be sent."""

    def exchange(node: str) -> None:
        lab.machines[node].machine_id = "f" * 32

    at_phase(lab, "rebooting", exchange)
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", "worker-1")
    assert (ended.code, ended.outcomes) == (4, {"worker-1": "reboot-refused"}), ended.stderr
    message = ended.failures["worker-1"]["message"]
    assert "not asked to reboot: a different machine answers" in message
    assert f"machine ID {'f' * 32} instead of" in message
    score = lab.scoreboard()
    assert score.reboots["worker-1"] == 0
    assert score.cordons_left == ()
    assert set(marks_of(lab, "worker-1")) == {"last-result"}


def test_another_machine_that_comes_back_proves_nothing(lab: Lab, rollout: Rollout) -> None:
    """The machine ID never changes over a reboot: whoever answers with another one is not the host
    that went down.
    """

    def exchange(event: HostEvent) -> None:
        if event is HostEvent.DOWN:
            lab.machines["worker-1"].machine_id = "e" * 32

    lab.call(lambda: lab.machines["worker-1"].observers.append(exchange))
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--node", "worker-1")
    assert (ended.code, ended.outcomes) == (4, {"worker-1": "not-back"}), ended.stderr
    assert "a different machine answers" in ended.failures["worker-1"]["message"]
    assert lab.scoreboard().cordons_left == ("worker-1",)
