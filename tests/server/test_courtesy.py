"""What a rollout does for people and programs around a reboot, where a server lets hosts reboot by themselves."""

from collections.abc import Callable, Mapping

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import NODES
from rollout.lab.lab import Lab
from tests.ended import Ended
from tests.server.conftest import Client, Serve, workers

Start = Callable[[str, int], Lab]
Rollout = Callable[..., Ended]
VERSION = "flatcar-linux-update.v1.flatcar-linux.net/version"
FLAGS = (
    *("--set", "labels.pre-reboot=maintenance=true,turn=", "--set", "labels.post-reboot=maintenance=false"),
    *("--set", "labels.fluo=true", "--set", "drain.delay=1s", "--set", "reboot.delay=1s"),
)


def metadata(lab: Lab, node: str, kind: str) -> Mapping[str, str]:
    found = lab.store.get(NODES, node)
    assert found is not None
    return {**(found["metadata"].get(kind) or {})}


def test_labels_and_delays_are_those_of_a_rollout(started: Start, serve: Serve) -> None:
    lab = started("default", 4)
    server, client = serve(lab, *FLAGS), Client(lab, workers(lab)[0])
    client.await_grant(server)
    labels = metadata(lab, client.node, "labels")
    assert (labels["maintenance"], labels["turn"]) == ("true", "")
    client.reboot()
    client.await_release(server)
    labels = metadata(lab, client.node, "labels")
    assert (labels["maintenance"], "turn" in labels, labels[VERSION]) == ("false", False, "4152.2.0")
    assert lab.scoreboard().annotations_left == {}
    said = "".join(server.said)
    assert "waiting 1s before its drain (drain.delay)" in said
    assert "waiting 1s before its reboot (reboot.delay)" in said
    assert server.end() == 0


@pytest.mark.parametrize("flag", [("--set", "reboot.wall=true"), ("--set", "reboot.wait-for-users=5m")])
def test_what_takes_ssh_is_refused(started: Start, rollout: Rollout, flag: tuple[str, ...]) -> None:
    ended = rollout(started("default", 4), "fleetlock", "--listen", "127.0.0.1:0", *flag)
    assert ended.code == ExitCode.USAGE
    assert "a FleetLock server uses none" in ended.stderr
