"""Static and DaemonSets' pods count for hosts that ask, as they do in a rollout."""

import pytest

from tests.security.hands import set_well
from tests.server.conftest import Client, Serve, is_cordoned, marks_of, slots_of, workers
from tests.server.test_life import Start
from tests.waiting import wait_until


@pytest.mark.exhaustive
def test_a_node_is_in_service_once_its_own_pods_are(started: Start, serve: Serve) -> None:
    lab = started("default", 5)
    server, client = serve(lab), Client(lab, workers(lab)[0])
    client.await_grant(server)
    lab.call(lambda: set_well(lab, client.node, "cilium", well=False))
    client.reboot()
    wait_until(
        lambda: client.report(server).kind == "waiting_for_proof" and marks_of(lab, client.node)["phase"] == "ready"
    )
    server.await_words("waiting for daemonset/kube-system/cilium")
    assert is_cordoned(lab, client.node)
    lab.call(lambda: set_well(lab, client.node, "cilium", well=True))
    client.await_release(server)
    wait_until(lambda: not slots_of(lab))
    assert not is_cordoned(lab, client.node)


def test_no_member_of_the_control_plane_goes_beside_one_that_is_not_well(started: Start, serve: Serve) -> None:
    lab = started("default", 6)
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    server = serve(lab)
    denied = Client(lab, "cp-2").ask(server)
    assert denied.kind == "held_by_gate"
    assert "cp-2: pod/kube-system/etcd-cp-1 is not Ready on cp-1" in denied.value
    assert not slots_of(lab)
    Client(lab, "cp-1").await_grant(server)
