"""What hosts with Zincati are given, and that they ask then; and the demo."""

import json
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.ended import end_of, start
from tests.scripted_api import Exchange, ScriptedServer, scripted
from tests.waiting import wait_until

# `rollout lab up --fleetlock`: every host asks there, as Zincati does.


def deny(exchange: Exchange) -> None:
    """As a FleetLock server that grants nothing."""
    exchange.answer(200 if exchange.path.endswith("steady-state") else 423, b"")


@pytest.mark.parametrize("scenario", ["default", "zincati"])
def test_each_host_reports_and_asks(scenario: str, tmp_path: Path) -> None:
    with scripted(deny) as server:
        lock = f"{server.url}/lock/"
        words = (
            *("lab", "up", "--scenario", scenario, "--nodes", "3", "--speed", "50"),
            *("--fleetlock", lock),
        )
        process = start(tmp_path, {}, words)
        try:
            wait_until(lambda: len(asking(server)) == 3)
        finally:
            process.terminate()
            ended = end_of(process)
    assert ended.code == 0, ended.stderr
    assert f"Hosts ask the FleetLock server at {lock} before they reboot" in ended.stderr
    assert {exchange.path for exchange in server.exchanges} == {
        "/lock/v1/steady-state",
        "/lock/v1/pre-reboot",
    }


def asking(server: ScriptedServer) -> set[str]:
    """The hosts that have asked whether they may reboot."""
    asked = [
        exchange for exchange in list(server.exchanges) if exchange.path == "/lock/v1/pre-reboot"
    ]
    return {json.loads(exchange.payload)["client_params"]["id"] for exchange in asked}


# The demo at the demo's speed.


def test_a_scenario_is_planned_with_its_own_flags(command: Command) -> None:
    """Else hosts that say otherwise than by update_engine that they need a reboot would show
    nothing.
    """
    ended = command("demo", "--scenario", "sources", "--speed", "60")
    sources = "--set detect.sources=update-engine,annotation,reboot-required,rpm-ostree"
    shown = " ".join(ended.stdout.split())
    assert f"$ rollout status {sources} NODE" in shown
    assert f"$ rollout plan {sources} --max-unavailable 3 --out " in shown
    assert "12 nodes: 8 pending, 3 behind, 1 inhibited" in ended.stdout
    assert "About " in shown
    # one of them goes on saying so after its reboot, which ends the rollout
    assert ended.code == ExitCode.PARTIAL
    assert (
        "✘ worker-5  the host rebooted, but the reboot was not verified by reboot-required"
        in ended.stdout
    )
    # and of those that were to reboot, and not to change, no old version is told
    assert "on its old version" not in ended.stdout
