"""No slot is reserved for a host whose node a rollout would exclude; other hosts get slots."""

import json
from typing import Any

import msgspec
import pytest

from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.lab import Lab
from rollout.lab.scenario import HostOverride, HostSelection, load_scenario
from rollout.model.marks import MEMORY_NAME
from rollout.wording.words import object_name
from tests.apply.conftest import Rollout, Started
from tests.apply.test_databases import node_of_primary, scenario, watched
from tests.conftest import StartLab
from tests.server.conftest import Client, Serve, Serving, slots_of, workers
from tests.state import is_cordoned, marks_of, rebooted, write, write_spec
from tests.waiting import wait_until

HELD = "4152.2.0"


def test_a_host_whose_node_is_about_to_be_removed_is_denied(started: Started, serve: Serve) -> None:
    lab = started("default", 4)
    client = Client(lab, workers(lab)[0])
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    write_spec(lab, client.node, taints=[taint])
    denied = client.request_reboot(serve(lab))
    assert denied.status == 423
    assert denied.kind == "node_excluded"
    assert "Karpenter is about to remove it: taint karpenter.sh/disrupted" in denied.value
    assert not is_cordoned(lab, client.node)


# Pods that are unready for longer than a drain waits stop it.
SHORT = ("--drain-timeout", "20s")


def blockers(lab: Lab, rollout: Rollout) -> dict[str, dict[str, str]]:
    """What a plan has against each node first."""
    entries: list[dict[str, str]] = json.loads(rollout(lab, "plan", "-o", "json", *SHORT).stdout)[
        "blockers"
    ]
    return {entry["node"]: entry for entry in reversed(entries)}


@pytest.mark.exhaustive
def test_a_host_whose_drain_could_never_end_is_denied_untouched_as_a_plan_says_it(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("forecast", 12)
    server = serve(lab, *SHORT)
    wait_until(
        lambda: "budget-unhealthy" in {entry["kind"] for entry in blockers(lab, rollout).values()}
    )
    blocked = blockers(lab, rollout)
    assert {entry["kind"] for entry in blocked.values()} == {
        *(
            "budget-never",
            "two-budgets",
            "unmanaged-pod",
            "budget-unhealthy",
            "fits-nowhere",
            "daemonset-gone",
        )
    }
    for node, entry in blocked.items():
        client = Client(lab, node)
        wait_until(lambda client=client: client.request_reboot(server).kind == "drain_blocked")  # type: ignore[misc]
        denied = client.request_reboot(server)
        assert denied.status == 423
        for part in (
            node,
            f"{entry['kind']}: {object_name(entry['object'])}: ",
            entry["message"].partition(" not been ready since ")[0],
        ):
            assert part in denied.value
        assert not is_cordoned(lab, node)
        assert marks_of(lab, node) == {}
    assert slots_of(lab) == []
    unblocked = Client(lab, "worker-6")
    assert unblocked.await_grant(server).kind == "granted"
    unblocked.reboot()
    unblocked.await_return(server)
    assert rebooted(lab) == {"worker-6"}


def remember(lab: Lab, **versions: dict[str, Any]) -> None:
    """Versions that have failed, as earlier rollouts leave them."""
    known = {name.replace("_", ".").removeprefix("v"): entry for name, entry in versions.items()}
    text = json.dumps({"format_version": "1.0", "versions": known})
    metadata = {"name": MEMORY_NAME, "namespace": "kube-system"}
    lab.call(
        lambda: lab.store.create(CONFIGMAPS, {"metadata": metadata, "data": {"memory.json": text}})
    )


def annotate(lab: Lab, node: str, **words: str) -> None:
    names = {
        f"flatcar-linux-update.v1.flatcar-linux.net/{name.replace('_', '-')}": words[name]
        for name in words
    }
    write(lab, node, "annotations", **names)


def failed_on(*nodes: str, held: bool = True) -> dict[str, Any]:
    at = "2026-11-20T01:00:00Z"
    return {"nodes": nodes, "at": at, "held_since": at if held else ""}


def test_a_version_that_is_held_or_may_be_is_not_let_onto_another_node(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started("default", 5)
    remember(lab, v4152_2_0=failed_on("worker-9"))
    server = serve(lab)
    client, told = [Client(lab, name) for name in workers(lab)[:2]]
    denied = client.request_reboot(server)
    assert denied.kind == "version_held"
    assert denied.status == 423
    assert f"version {HELD} is held: it failed on 1 node (worker-9)" in denied.value
    assert f"rollout release {HELD}" in denied.value
    assert not is_cordoned(lab, client.node)
    assert slots_of(lab) == []
    annotate(lab, told.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version="4999.0.0")
    assert told.request_reboot(server).kind == "waiting_for_drain", (
        "another version waits there, as its agent says"
    )
    told.report(server)
    wait_until(lambda: not slots_of(lab))
    annotate(lab, told.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version=HELD)
    wait_until(lambda: told.request_reboot(server).kind == "version_held")
    assert client.request_reboot(serve(lab, "--allow", "held")).kind == "waiting_for_drain"
    client.report(server)
    wait_until(lambda: not slots_of(lab))
    rollout(lab, "release", HELD).ends(0)
    assert rollout(lab, "release", "--node", client.node).code == 0, "it has given a reboot up"
    wait_until(
        lambda: (
            client.request_reboot(server).status != 423
            or client.request_reboot(server).kind == "waiting_for_drain"
        )
    )


def test_the_slot_of_a_host_that_waits_for_its_grant_is_released_once_its_version_is_held(
    started: Started, serve: Serve
) -> None:
    lab = started("default", 5)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    annotate(lab, client.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version="4100.0.0")
    client.await_drain(server)
    wait_until(lambda: marks_of(lab, client.node).get("phase") == "drained")
    remember(lab, v4152_2_0=failed_on("worker-9"))
    annotate(lab, client.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version=HELD)
    wait_until(lambda: client.request_reboot(server).kind == "version_held")
    assert client.request_reboot(server).status == 423
    wait_until(lambda: not slots_of(lab), 90)
    assert not is_cordoned(lab, client.node)
    assert rebooted(lab) == set()
    assert client.request_reboot(server).kind == "version_held"


def test_a_version_with_which_a_node_does_not_become_ready_is_held_for_all(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    """What the server has seen to fail, `apply` knows as well."""
    never_ready = HostOverride(select=HostSelection(names=("worker-1",)), flaps=((0, False),))
    lab = started(msgspec.structs.replace(load_scenario("default"), hosts=(never_ready,)), 5)
    server = serve(lab, "--ready-timeout", "2s", "--slot-timeout", "6s", "--max-unavailable", "2")
    client, other = [Client(lab, name) for name in ("worker-1", "worker-2")]
    client.await_grant(server)
    client.reboot()
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] in (["absent"], ["failed"]))
    plan = json.loads(rollout(lab, "plan", "-o", "json").stdout)
    assert {entry["reason"] for entry in plan["excluded"] if entry["node"] == other.node} == {
        "version-held"
    }
    assert server.has_said(f"version {HELD} is held")


def test_one_node_that_backs_off_keeps_no_other_from_its_slot(
    started: Started, serve: Serve
) -> None:
    """Anybody can forge a request; a host that is gone after its reboot holds the version that it had
    staged, no more.
    """
    lab = started("default", 8)
    server = serve(lab, "--slot-timeout", "2s", "--max-unavailable", "3")
    forged, gone, alike, other = [Client(lab, name) for name in workers(lab)[:4]]
    assert forged.request_reboot(server).kind == "waiting_for_drain"
    wait_until(lambda: forged.request_reboot(server).kind == "failed_recently")
    for client in (gone, alike):
        annotate(lab, client.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version=HELD)
    gone.await_grant(server)
    lab.call(lab.machines[gone.node].cut_power)
    wait_until(lambda: [slot["state"] for slot in slots_of(lab)] == ["absent"])
    wait_until(lambda: alike.request_reboot(server).kind == "version_held")
    annotate(lab, other.node, status="UPDATE_STATUS_UPDATED_NEED_REBOOT", new_version="4999.0.0")
    other.await_grant(server)
    assert not is_cordoned(lab, forged.node)


# Hosts that come back on the version from before: told wherever reboots are, and made to rest where
# they go on.


def left_by_a_reboot(server: Serving, client: Client) -> dict[str, str]:
    """Once through, and what is left on the Node of it."""
    client.await_grant(server)
    client.reboot()
    released = client.await_return(server)
    assert released.kind == "released"
    wait_until(lambda: not slots_of(client.lab))
    result: dict[str, str] = json.loads(marks_of(client.lab, client.node)["last-result"])
    return result


@pytest.mark.exhaustive
def test_a_host_that_falls_back_again_and_again_backs_off(
    started: Started, serve: Serve, rollout: Rollout
) -> None:
    lab = started(load_scenario("idle"), 4)
    server = serve(lab)
    client = Client(lab, workers(lab)[0])
    assert (result := left_by_a_reboot(server, client))["unmoved"] == "1"
    assert server.has_said("the update did not take effect")
    # the count stands on the Node: another server goes on with it
    server.end()
    server = serve(lab)
    result = left_by_a_reboot(server, client)
    assert result["outcome"] == "succeeded"
    assert result["unmoved"] == "2"
    assert server.has_said("after 2 reboots in a row: it will not be rebooted again")
    assert not is_cordoned(lab, client.node)
    denied = client.request_reboot(server)
    assert denied.kind == "failed_recently"
    assert denied.status == 423
    assert f"rollout release --node {client.node}" in denied.value
    assert sum(lab.scoreboard().reboots.values()) == 2
    assert Client(lab, workers(lab)[1]).request_reboot(server).kind == "waiting_for_drain", (
        "the others may go on"
    )

    rollout(lab, "release", "--node", client.node).ends(0)
    wait_until(lambda: client.request_reboot(server).kind != "failed_recently")


def test_hosts_of_one_database_are_emptied_one_after_another(
    start_lab: StartLab, serve: Serve
) -> None:
    lab = start_lab(scenario("60"))
    first = Client(lab, node_of_primary(lab))
    second = Client(lab, next(name for name in workers(lab) if name != first.node))
    server = serve(lab, "--slots", "2", "--max-unavailable", "2")
    with watched(lab) as watch:
        for client in (first, second):
            client.request_reboot(server)
        for client in (first, second):
            client.await_grant(server)
            client.reboot()
            client.await_return(server)
    assert watch.gaps == []
    assert watch.emptying == 1
    assert rebooted(lab) == {first.node, second.node}
