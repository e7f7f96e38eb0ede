import pytest

from rollout.cli.settings.reading import SettingsFile, assignments, merge_settings
from rollout.cli.settings.rules import selection_of
from rollout.cli.stages.selection import selected_names
from rollout.errors import InputError
from rollout.model.cluster import Node, NodeAddress
from rollout.model.policy import Selection
from tests.planning import builders


def node(name: str, /, address: str = "", **labels: str) -> Node:
    addresses = (NodeAddress("InternalIP", address),) if address else ()
    return builders.node(name, labels=labels, addresses=addresses)


NODES = (node("web-1", pool="web"), node("web-2", pool="web"), node("db-1", pool="db"))


def test_selector_and_names_both_choose() -> None:
    assert selected_names(NODES, NODES, Selection()) == ("web-1", "web-2", "db-1")
    assert selected_names(NODES, NODES, Selection(nodes=("db-1",))) == ("db-1",)
    assert selected_names(NODES, NODES[:2], Selection("pool=web", ("web-2",))) == ("web-2",)
    # nodes that a pattern speaks of may still come
    assert selected_names(NODES, NODES, Selection(exclude=("gpu-*",))) == ("web-1", "web-2", "db-1")


@pytest.mark.parametrize(
    ("selection", "matching", "message", "hint"),
    [
        (Selection(nodes=("web-3",)), NODES, "no node web-3", "web-"),
        (Selection(nodes=("zzz",)), NODES, "no node zzz", "The cluster has web-1, web-2, db-1"),
        (Selection(exclude=("web-22",)), NODES, "no node web-22", "Similar: web-2"),
        (
            Selection("pool=wbe"),
            (),
            "no node matches the selector 'pool=wbe'",
            "values of pool: db, web",
        ),
        (Selection("pol=web"), (), "no node matches the selector 'pol=web'", "these labels: pool"),
        (
            Selection("pool=web", ("db-1",)),
            NODES[:2],
            "none of the nodes named by --node",
            "--selector",
        ),
    ],
)
def test_a_choice_of_nothing_says_what_comes_close(
    selection: Selection, matching: tuple[Node, ...], message: str, hint: str
) -> None:
    with pytest.raises(InputError, match="node") as caught:
        selected_names(NODES, matching, selection)
    assert message in caught.value.message
    assert hint in caught.value.hint


CLOUD = tuple(node(f"ip-10-0-0-{n}.ec2.internal", address=f"10.0.0.{n}") for n in range(10, 20))


@pytest.mark.parametrize(
    ("nodes", "written", "hint"),
    [
        (NODES, "web-2.example.com", "Similar: web-2"),
        (NODES, "DB-1", "Similar: db-1"),
        (CLOUD, "ip-10-0-0-17", "Similar: ip-10-0-0-17.ec2.internal"),
        (CLOUD, "10.0.0.17", "Similar: ip-10-0-0-17.ec2.internal"),
        (
            NODES,
            "web-*",
            "Only --exclude accepts patterns. Write whole names, or select labels with --selector.",
        ),
    ],
)
def test_a_node_goes_by_other_names_elsewhere(
    nodes: tuple[Node, ...], written: str, hint: str
) -> None:
    with pytest.raises(InputError) as caught:
        selected_names(nodes, nodes, Selection(nodes=(written,)))
    assert caught.value.hint == hint


def test_nodes_are_named_as_kubectl_and_our_own_lists_write_them() -> None:
    words = ("nodes.node=node/web-1,web-2", "nodes.node=nodes/web-1", "nodes.exclude=node/db-*")
    assert selection_of(merge_settings(SettingsFile(), {}, assignments(words))) == Selection(
        nodes=("web-1", "web-2"), exclude=("db-*",)
    )
