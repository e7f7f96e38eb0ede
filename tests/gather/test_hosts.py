"""Which host stands behind which Node, and that each is asked for itself."""

import threading
from collections.abc import Mapping
from unittest.mock import create_autospec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.errors import InventoryError, SshError, SshTimeoutError, SshUnreachableError
from rollout.gather.hosts import polling
from rollout.gather.hosts.identity import HOSTNAME_LABEL, match_hosts
from rollout.gather.hosts.polling import ask_in_threads, observe
from rollout.gather.hosts.probe_command import USUAL_PROBE
from rollout.gather.inventory import Inventory, SshDefaults
from rollout.model.cluster import Node, NodeAddress
from rollout.model.host import Host, ProbeFailure, ProbeFailureKind
from rollout.ports import CommandResult, HostShell
from tests.planning import builders

DEFAULTS = SshDefaults("admin", 2200, "/id")


def node(name: str, *addresses: tuple[str, str], hostname: str = "") -> Node:
    named = tuple(NodeAddress(kind, address) for kind, address in addresses)
    return builders.node(name, labels={HOSTNAME_LABEL: hostname or name}, addresses=named)


def match(nodes: list[Node], *hosts: Host) -> Mapping[str, Host]:
    return match_hosts(nodes, Inventory(hosts), DEFAULTS)


@pytest.mark.parametrize(
    ("addresses", "chosen"),
    [
        (
            [("Hostname", "n1"), ("ExternalIP", "198.51.100.1"), ("InternalIP", "192.0.2.1")],
            "192.0.2.1",
        ),
        ([("Hostname", "n1"), ("ExternalIP", "198.51.100.1")], "198.51.100.1"),
        ([("InternalDNS", "n1.internal"), ("Hostname", "n1")], "n1"),
        ([("InternalIP", "2001:db8::1"), ("InternalIP", "192.0.2.1")], "2001:db8::1"),
        ([("InternalIP", ""), ("Hostname", "n1")], "n1"),
        ([("InternalDNS", "n1.internal")], ""),
        ([], ""),
    ],
)
def test_nodes_are_the_hosts(addresses: list[tuple[str, str]], chosen: str) -> None:
    found = match_hosts([node("n1", *addresses)], None, DEFAULTS)
    assert found == {"n1": Host("n1", chosen, 2200, "admin", "/id")}


def test_by_name_then_address_then_label() -> None:
    by_name = Host("n1", "203.0.113.1")
    by_address = Host("second", "2001:DB8::2")
    by_label = Host("third", "third.example")
    nodes = [
        node("n3", hostname="third"),
        node("n2", ("InternalIP", "2001:db8::2")),
        node("n1", ("InternalIP", "192.0.2.1")),
        node("n4"),
    ]
    stranger = Host("other", "192.0.2.99")
    found = match(nodes, by_name, stranger, by_address, by_label)
    assert found == {"n1": by_name, "n2": by_address, "n3": by_label}


@pytest.mark.parametrize(
    "second", [Host("b", "192.0.2.1"), Host("b", "b.example")], ids=["by address", "by label"]
)
def test_two_hosts_claim_one_node(second: Host) -> None:
    nodes = [node("n1", ("InternalIP", "192.0.2.1"), hostname="b")]
    with pytest.raises(InventoryError, match="hosts n1 and b of the inventory are both node n1"):
        match(nodes, Host("n1", "203.0.113.1"), second)


def test_a_host_at_another_nodes_address() -> None:
    nodes = [node("n1", ("InternalIP", "192.0.2.1")), node("n2", ("InternalIP", "192.0.2.2"))]
    with pytest.raises(InventoryError, match=r"host n1 .* has the address 192\.0\.2\.2 of node n2"):
        match(nodes, Host("n1", "192.0.2.2"))


SPELLINGS = ["FD00:0::2", "fd00:0:0:0:0:0:0:2", "[fd00::2]"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_an_address_is_the_same_node(spelling: str) -> None:
    host = Host("second", spelling)
    assert match([node("n2", ("InternalIP", "fd00::2"))], host) == {"n2": host}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_another_spelling_of_another_nodes_address_is_refused(spelling: str) -> None:
    nodes = [node("n1", ("InternalIP", "fd00::1")), node("n2", ("InternalIP", "fd00::2"))]
    with pytest.raises(InventoryError, match="of node n2"):
        match(nodes, Host("n1", spelling))


@pytest.mark.parametrize("spelling", ["FD00:0::1", "fd00:0:0:0:0:0:0:1"])
def test_hosts_at_two_spellings_of_one_address_are_refused_by_name(spelling: str) -> None:
    nodes = [node("n1", ("InternalIP", "fd00::1"))]
    with pytest.raises(InventoryError, match="hosts a and b of the inventory are both node n1"):
        match(nodes, Host("a", "fd00::1"), Host("b", spelling))


def test_a_mapped_address_is_the_nodes_ipv4_address() -> None:
    host = Host("second", "::ffff:192.0.2.2")
    assert match([node("n2", ("InternalIP", "192.0.2.2"))], host) == {"n2": host}


NAMES = st.lists(st.sampled_from("abcde"), unique=True)


@given(NAMES, NAMES, st.data())
def test_nobody_is_doubled_or_made_up(
    node_names: list[str], host_names: list[str], data: st.DataObject
) -> None:
    addresses = st.sampled_from(["192.0.2.1", "192.0.2.2", "192.0.2.3", "x"])
    nodes = [node(name, ("InternalIP", data.draw(addresses))) for name in node_names]
    hosts = [Host(name, data.draw(addresses)) for name in host_names]
    try:
        found = match(nodes, *hosts)
    except InventoryError:
        return
    assert found.keys() <= set(node_names)
    matched = [host.name for host in found.values()]
    assert len(set(matched)) == len(matched)
    assert set(matched) <= set(host_names)


def test_a_sign_that_nodes_share_tells_nothing() -> None:
    nodes = [node(name, ("ExternalIP", "198.51.100.1"), hostname="same") for name in ("n1", "n2")]
    host = Host("same", "198.51.100.1")
    assert match(nodes, host) == {}


def test_nodes_that_spell_one_address_differently_share_it() -> None:
    nodes = [node("n1", ("InternalIP", "fd00::1")), node("n2", ("InternalIP", "FD00:0::1"))]
    assert match(nodes, Host("other", "fd00::1")) == {}


def test_short_names_are_no_match() -> None:
    found = match([node("n1.example", hostname="n1.example")], Host("n1", "203.0.113.1"))
    assert found == {}


def test_a_host_that_fails_or_surprises_costs_its_own_answer_and_so_many_are_asked_at_once() -> (
    None
):
    failures = {"h3": SshTimeoutError("slow"), "h4": RuntimeError("a bug")}
    room = threading.Semaphore(4)

    def ask(host: Host) -> str:
        assert room.acquire(blocking=False), "more are asked than was meant"
        try:
            if host.name in failures:
                raise failures[host.name]
            return host.name
        finally:
            room.release()

    hosts = {f"node-{number}": Host(f"h{number}", "192.0.2.1") for number in range(20)}
    found = dict(ask_in_threads(hosts, ask, concurrency=4))
    assert found.keys() == hosts.keys()
    failed = {name: type(answer) for name, answer in found.items() if isinstance(answer, SshError)}
    assert failed == {"node-3": SshTimeoutError, "node-4": SshUnreachableError}


def test_an_answer_that_breaks_the_parser_is_garbled(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> None:
        raise ValueError("a bug" * 100)

    monkeypatch.setattr(polling, "parse_probe", fail)
    shell = create_autospec(HostShell, instance=True)
    shell.run.return_value = CommandResult(0, "", "")
    failure = observe(Host("h1", "192.0.2.1"), shell, probe=USUAL_PROBE, timeout=1)
    assert isinstance(failure, ProbeFailure)
    assert failure.kind is ProbeFailureKind.GARBLED
    assert failure.message.startswith("its response cannot be read: ValueError('a bug")
    assert len(failure.message) < 200
