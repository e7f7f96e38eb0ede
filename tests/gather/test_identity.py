"""Whether it is the Node's host that answered: boot IDs prove it, whatever machine ID the kubelet
reports.
"""

from rollout.gather.doctor.cluster import machine_id_checks
from rollout.gather.hosts.identity import MACHINE_ID_FIX, verify_identities
from rollout.model.cluster import Node
from rollout.model.host import HostFacts, HostObservation, ProbeFailure, ProbeFailureKind
from rollout.server.nodes import node_of_host
from rollout.server.protocol import Denied
from tests.planning.builders import facts, node

IMAGE = "0f0e0d0c0b0a09080706050403020100"


def kind(observation: HostObservation) -> ProbeFailureKind | None:
    return observation.kind if isinstance(observation, ProbeFailure) else None


def kinds(nodes: list[Node], *answers: HostFacts) -> dict[str, ProbeFailureKind | None]:
    found = verify_identities(nodes, {answer.host.name: answer for answer in answers})
    return {name: kind(observation) for name, observation in found.items()}


def test_kubelets_that_report_the_machine_id_of_their_image_are_told_apart_by_boot_ids() -> None:
    nodes = [node("a", machine_id=IMAGE), node("b", machine_id=IMAGE)]
    assert kinds(nodes, facts("a"), facts("b")) == {"a": None, "b": None}


def test_the_hosts_own_machine_id_is_kept() -> None:
    (found,) = verify_identities([node("a", machine_id=IMAGE)], {"a": facts("a")}).values()
    assert isinstance(found, HostFacts)
    assert found.machine_id == "machine-a"


def test_a_kubelet_without_a_machine_id_is_known_by_its_boot_id() -> None:
    assert kinds([node("a", machine_id="")], facts("a")) == {"a": None}


def test_two_nodes_of_one_boot_are_refused_whatever_their_machine_ids_are() -> None:
    nodes = [node("a", boot_id="one", machine_id="x"), node("b", boot_id="one", machine_id="y")]
    found = kinds(nodes, facts("a", boot_id="one"), facts("b", boot_id="one"))
    assert found == {"a": ProbeFailureKind.WRONG_HOST, "b": ProbeFailureKind.WRONG_HOST}


def test_a_boot_id_of_another_node_is_the_wrong_host_whatever_the_machine_ids_are() -> None:
    nodes = [node("a", machine_id=IMAGE), node("b", machine_id=IMAGE)]
    assert kinds(nodes, facts("a", boot_id="boot-b"))["a"] is ProbeFailureKind.WRONG_HOST


def test_another_boot_of_a_host_whose_kubelet_reports_a_shared_machine_id_is_not_reported_yet() -> (
    None
):
    nodes = [node("a", machine_id=IMAGE), node("b", machine_id=IMAGE)]
    assert kinds(nodes, facts("a", boot_id="new"))["a"] is ProbeFailureKind.UNREPORTED


def test_another_boot_and_another_machine_id_of_its_own_is_the_wrong_host() -> None:
    found = kinds([node("a"), node("b")], facts("a", boot_id="new", machine_id="other"))
    assert found["a"] is ProbeFailureKind.WRONG_HOST


def denied_to(asked_as: str, nodes: list[Node]) -> str:
    try:
        node_of_host(asked_as, nodes)
    except Denied as denied:
        return str(denied.answer)
    return ""


def test_fleetlock_names_the_cause_when_nodes_share_a_machine_id() -> None:
    nodes = [node("a", machine_id=IMAGE), node("b", machine_id=IMAGE)]
    assert "a, b report the same machine ID" in denied_to("unknown", nodes)


def test_fleetlock_names_the_cause_when_a_node_has_no_machine_id() -> None:
    assert "nodeInfo has no machine ID" in denied_to(
        "unknown", [node("a", machine_id=""), node("b")]
    )


def test_fleetlock_blames_no_machine_id_that_is_a_nodes_own() -> None:
    assert MACHINE_ID_FIX not in denied_to("unknown", [node("a"), node("b")])


def test_doctor_warns_once_of_a_shared_machine_id_and_of_no_other() -> None:
    nodes = [node("a", machine_id=IMAGE), node("b", machine_id=IMAGE), node("c")]
    (check,) = machine_id_checks(nodes)
    assert check.subject == "a"
    assert check.verdict == "warn"
    assert "a, b report the same machine ID" in check.message
    assert "/etc/machine-id" in check.fix.text
