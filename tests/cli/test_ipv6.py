"""The commands on hosts with IPv6 addresses, which inventories and known_hosts write in brackets."""

import json
import re
import socket
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import Scenario, load_scenario
from tests.cli.conftest import Command
from tests.conftest import StartLab

TINY = str(Path(__file__).parent / "tiny.yaml")


def has_ipv6_loopback() -> bool:
    try:
        with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_ipv6_loopback(), reason="needs the address ::1")


@pytest.fixture
def ipv6() -> Scenario:
    return msgspec.structs.replace(load_scenario(TINY), ipv6=True)


@pytest.fixture
def lab(start_lab: StartLab, ipv6: Scenario) -> Lab:
    return start_lab(ipv6)


@pytest.mark.parametrize("executor", ["ssh", "ansible"])
def test_nodes_and_known_hosts_have_ipv6_addresses(
    lab: Lab, command: Command, executor: str
) -> None:
    nodes = json.loads(
        command("status", "--executor", executor, "-o", "json", lab=lab).ends(0).stdout
    )["nodes"]
    assert [node["error"] for node in nodes] == [""] * 3
    addresses = {machine.address for machine in lab.machines.values()}
    assert addresses == {"::1"}
    lines = lab.known_hosts.read_text().splitlines()
    assert [line for line in lines if not re.match(r"\[::1\]:\d+ ssh-ed25519 ", line)] == []


def test_a_plan_is_applied(lab: Lab, command: Command) -> None:
    command("plan", "--out", "my.plan", lab=lab).ends(0)
    ended = command("apply", "my.plan", "-o", "json", lab=lab).ends(0)
    assert len(ended.summary["succeeded"]) == 3
    assert lab.scoreboard().clean


@pytest.mark.parametrize("spelling", ["'[::1]'", "'0:0:0:0:0:0:0:1'", "'[0:0::1]'"])
def test_an_inventory_may_spell_the_address_otherwise(
    lab: Lab, command: Command, tmp_path: Path, spelling: str
) -> None:
    inventory = tmp_path / "other.yaml"
    inventory.write_text(
        re.sub(r"ansible_host: \S+", f"ansible_host: {spelling}", lab.inventory.read_text())
    )
    assert spelling in inventory.read_text()
    nodes = json.loads(
        command("status", "-i", str(inventory), "-o", "json", lab=lab).ends(0).stdout
    )["nodes"]
    assert [node["error"] for node in nodes] == [""] * 3


def test_a_new_known_hosts_file_has_the_addresses_in_brackets(
    lab: Lab, command: Command, tmp_path: Path
) -> None:
    written = tmp_path / "known"
    fingerprints = tmp_path / "fingerprints"
    shown = command("known-hosts", "-o", "json", lab=lab).stdout
    fingerprints.write_text(" ".join(re.findall(r"SHA256:[A-Za-z0-9+/]{43}", shown)))
    command(
        "known-hosts", "--out", str(written), "--fingerprints", str(fingerprints), lab=lab
    ).ends(0)
    assert sorted(written.read_text().splitlines()) == sorted(
        lab.known_hosts.read_text().splitlines()
    )
