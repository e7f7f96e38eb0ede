"""One host's life by a server: it asks, its node is drained, it reboots, it reports, and its node is in service."""

from collections.abc import Callable

from rollout.lab.lab import Lab
from tests.ended import Ended
from tests.server.conftest import Client, Serve, holder_of, is_cordoned, marks_of, slots_of, wait_for, workers

Start = Callable[[str, int], Lab]
Rollout = Callable[..., Ended]


def test_a_host_reboots_once_its_node_is_drained_and_is_given_back_by_proof(started: Start, serve: Serve) -> None:
    lab = started("default", 4)
    server, client = serve(lab), Client(lab, workers(lab)[0])
    first = client.ask(server)
    assert (first.status, first.kind) == (423, "waiting_for_drain")
    granted = client.await_grant(server)
    assert granted.kind == "granted"
    assert is_cordoned(lab, client.node)
    assert marks_of(lab, client.node)["phase"] == "rebooting"
    assert holder_of(lab).startswith("fleetlock-server/")
    assert client.ask(server).kind == "granted"

    assert client.report(server).kind == "waiting_for_proof"
    client.reboot()
    assert client.await_release(server).kind == "released"
    assert not is_cordoned(lab, client.node)
    assert set(marks_of(lab, client.node)) == {"last-result"}
    wait_for(lambda: not slots_of(lab))
    wait_for(lambda: not holder_of(lab))
    assert client.report(server).kind == "not_held"
    score = lab.scoreboard()
    assert (score.cordons_left, score.annotations_left, score.rebooted_undrained) == ((), {}, ())
    assert server.end() == 0
