"""Scenario files: those that ship all load; what is wrong in others is named."""

import errno
from pathlib import Path

import pytest

from rollout.errors import ScenarioError
from rollout.lab.copied import scenario_like
from rollout.lab.hostplan import ZONE_LABEL, plan_hosts, scale
from rollout.lab.hosts.faults import RebootFault
from rollout.lab.hosts.machine import EngineState
from rollout.lab.lab import Lab
from rollout.lab.scenario import Role, load_scenario
from rollout.lab.scenarios import scenario_names

NODES = "nodes: [{prefix: n, count: 2, zones: [a, b]}]\n"


def written(folder: Path, text: str) -> str:
    path = folder / "mine.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", scenario_names())
def test_a_shipped_scenario_loads_and_describes_itself(name: str) -> None:
    scenario = load_scenario(name)

    assert scenario.name == name
    assert scenario.description.endswith(".")
    assert plan_hosts(scenario)


def test_a_file_of_ones_own_loads(tmp_path: Path) -> None:
    scenario = load_scenario(written(tmp_path, "description: Mine.\n" + NODES))

    assert scenario.name == "mine"
    assert scenario.description == "Mine."
    assert [
        (host.name, host.settings.labels[ZONE_LABEL], host.role) for host in plan_hosts(scenario)
    ] == [("n-1", "a", Role.WORKER), ("n-2", "b", Role.WORKER)]


def test_a_scenario_on_top_of_another(tmp_path: Path) -> None:
    text = """
description: More.
extends: rollback
hosts: [{select: {names: [worker-1]}, faults: {reboot: ignored}}]
"""
    hosts = plan_hosts(load_scenario(written(tmp_path, text)))
    faults = {host.name: host.settings.faults.reboot for host in hosts if host.settings.faults}

    assert faults == {"worker-1": RebootFault.IGNORED, "worker-2": RebootFault.ROLLS_BACK}


def test_a_file_that_cannot_be_read_as_it_has_to_be_is_refused(tmp_path: Path) -> None:
    def refuse(path: Path) -> bytes:
        raise OSError(errno.EINVAL, "it is a named pipe, not a regular file", str(path))

    path = written(tmp_path, "description: Mine.\n" + NODES)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, refuse)
    assert caught.value.message == (
        f"cannot read the scenario {path}: it is a named pipe, not a regular file"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "is not valid YAML"),
        ("description: x\nnodes: [}", "line 2, column 9"),
        (
            f"description: x\nnodes: [{{prefix: n, count: 1{'0' * 400}}}]",
            "nodes[0].count: expected `int` <= 100000",
        ),
        ("", "a scenario is a mapping"),
        (NODES, "missing required field `description`"),
        ("description: x\nnodes: []", "at least one node"),
        ("description: x\nspeeed: 3\n" + NODES, "unknown field `speeed`"),
        (
            "description: x\nnodes: [{prefix: n, count: many}]",
            "nodes[0].count: expected `int`, got `str`",
        ),
        (
            "description: x\nnodes: [{prefix: N_1, count: 1}]",
            "nodes[0].prefix: expected `str` matching regex",
        ),
        ("description: x\nnodes: [{prefix: n, count: 1}, {prefix: n, count: 1}]", "same prefix"),
        ("description: x\nextends: nosuch", "extends does not name a built-in scenario: nosuch"),
        (
            "description: x\nhosts: [{select: {}, faults: {bus: shy}}]\n" + NODES,
            "hosts[0].faults.bus: invalid enum value 'shy'",
        ),
        (
            "description: x\nhosts: [{select: {}, update: {state: staged, to: null}}]\n" + NODES,
            "needs a version",
        ),
        (
            "description: x\nworkloads: [{kind: Deployment, name: a, budget: {}}]\n" + NODES,
            "workloads[0].budget: a budget has either",
        ),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)

    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)

    assert complaint in caught.value.message
    assert path in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("nodes", "control_plane", "workers"), [(1, 0, 1), (2, 1, 1), (5, 1, 4), (6, 3, 3)]
)
def test_scaling_keeps_something_to_run_workloads_on(
    nodes: int, control_plane: int, workers: int
) -> None:
    roles = [host.role for host in plan_hosts(scale(load_scenario("default"), nodes))]

    assert roles.count(Role.CONTROL_PLANE) == control_plane
    assert roles.count(Role.WORKER) == workers


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("{}", ["n-1", "n-2", "n-3", "n-4"]),
        ("{names: [n-2, n-4]}", ["n-2", "n-4"]),
        ("{zone: a}", ["n-1", "n-3"]),
        ("{names: [n-1, n-2], zone: b}", ["n-2"]),
    ],
)
def test_selection(select: str, names: list[str], tmp_path: Path) -> None:
    text = (
        "description: x\nnodes: [{prefix: n, count: 4, zones: [a, b]}]\n"
        f"hosts: [{{select: {select}, update: {{state: idle}}}}]"
    )
    hosts = plan_hosts(load_scenario(written(tmp_path, text)))

    idle = (
        host
        for host in hosts
        if host.settings.update and host.settings.update.state is EngineState.IDLE
    )
    assert [host.name for host in idle] == names


def test_a_name_with_a_typo_is_answered_with_the_one_that_is_meant() -> None:
    with pytest.raises(ScenarioError) as caught:
        load_scenario("never-return")
    assert caught.value.hint == "Did you mean never-returns? See them all: rollout lab scenarios"


SNAPSHOT = (
    '{"format_version": "1.0", "kind": "node-rollout-snapshot",'
    ' "pace": {"reboot": 60, "owners": {}}, "nodes": ['
)
NODE = '{"metadata": {"name": "w-1", "uid": "u"}, "spec": {}, "status": {}}'


@pytest.mark.parametrize(
    "rest",
    [
        "{}]}",
        '{"metadata": 5}]}',
        f'{NODE}], "pods": [{{"metadata": {{"name": "p"}}, "spec": 5}}]}}',
        f'{NODE}], "budgets": [{{"spec": {{}}}}]}}',
    ],
)
def test_a_snapshot_with_an_object_that_no_server_gives_is_refused(
    rest: str, tmp_path: Path
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(SNAPSHOT + rest)
    with (
        pytest.raises(ScenarioError, match="one of its objects cannot be read"),
        Lab(scenario_like(file), directory=tmp_path / "lab", speed=1),
    ):
        pass
