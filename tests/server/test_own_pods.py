"""Static and DaemonSets' pods count for hosts that ask, as they do in a rollout."""

from tests.security.hands import set_well
from tests.server.conftest import Client, Serve, slots_of
from tests.server.test_life import Start


def test_no_member_of_the_control_plane_goes_beside_one_that_is_not_well(started: Start, serve: Serve) -> None:
    lab = started("default", 6)
    lab.call(lambda: set_well(lab, "cp-1", "etcd", well=False))
    server = serve(lab)
    denied = Client(lab, "cp-2").ask(server)
    assert denied.kind == "held_by_gate"
    assert "cp-2: pod/kube-system/etcd-cp-1 is not Ready on cp-1" in denied.value
    assert not slots_of(lab)
    Client(lab, "cp-1").await_grant(server)
