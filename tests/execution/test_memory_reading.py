"""A memory that cannot be read: whatever is wrong with it, it is not taken for one of nothing."""

import json
from dataclasses import dataclass
from typing import Any, cast

import pytest
from msgspec.structs import replace

from rollout.errors import ApiError, BlockedError
from rollout.execution.record.memory import Change, change_memory, require_readable_memory
from rollout.gather.cluster.documents import read_memory
from rollout.lab.api.resources import CONFIGMAPS
from rollout.model.marks import MEMORY_NAME
from rollout.model.memory import NO_MEMORY, Memory, NodeFailures, Pause, VersionFailures
from rollout.ports import ClusterApi
from tests.execution.drains import put, stored
from tests.standalone_api import StandaloneApi

NAMESPACE = "kube-system"


def of_node(failures: str, at: str) -> str:
    return (
        f'{{"format_version": "1.0", "nodes": {{"w-1": {{"failures": {failures}, "at": "{at}",'
        ' "outcome": "x"}}}'
    )


NOW = "2026-11-28T00:00:00Z"
TEXTS = {
    "no JSON": "{",
    "empty": "",
    "null": "null",
    "a newer format": '{"format_version": "7.0"}',
    "no format": "{}",
    "wrong types": '{"format_version": "1.0", "versions": []}',
    "a pause that is a word": '{"format_version": "1.0", "pause": "yes"}',
    "deep nesting": '{"format_version": "1.0", "nodes": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a number of thousands of digits": of_node("9" * 5000, NOW),
    "a number beyond all failures": of_node("9" * 30, NOW),
    "an infinite number": of_node("1e999", NOW),
    "a fraction": of_node("1.5", NOW),
    "a time before all rests": of_node("1", "0001-01-01T00:00:00Z"),
    "a time after all rests": of_node("1", "9999-12-31T23:59:59Z"),
    "no node name": (
        '{"format_version": "1.0", "nodes": {"../x": {"failures": 1, "at": "", "outcome": ""}}}'
    ),
}


def config_map(**content: object) -> dict[str, Any]:
    return {"metadata": {"name": MEMORY_NAME, "namespace": NAMESPACE}, **content}


def assert_unreadable(api: ClusterApi) -> None:
    memory = read_memory(api, NAMESPACE)
    with pytest.raises(BlockedError, match="ConfigMap kube-system/node-rollout-memory") as refused:
        require_readable_memory(memory)
    assert "rollout release --all" in refused.value.hint


@pytest.mark.in_memory
@pytest.mark.parametrize("what", TEXTS)
def test_it_is_refused_left_as_it_is_and_reset(
    what: str, server: StandaloneApi, api: ClusterApi
) -> None:
    put(server, CONFIGMAPS, config_map(data={"memory.json": TEXTS[what], "own": "kept"}))
    assert_unreadable(api)
    with pytest.raises(ApiError, match="left unchanged"):
        change_memory(api, NAMESPACE, lambda memory: memory)
    assert stored(server, CONFIGMAPS, MEMORY_NAME, NAMESPACE)["data"]["memory.json"] == TEXTS[what]
    assert (
        change_memory(api, NAMESPACE, lambda memory: memory, replace_unreadable=True) == NO_MEMORY
    )
    assert json.loads(
        stored(server, CONFIGMAPS, MEMORY_NAME, NAMESPACE)["data"]["memory.json"]
    ) == {"format_version": "1.0", "nodes": {}, "versions": {}, "evidence": {}}
    assert stored(server, CONFIGMAPS, MEMORY_NAME, NAMESPACE)["data"]["own"] == "kept"
    require_readable_memory(read_memory(api, NAMESPACE))


OF_A_NEWER_VERSION: dict[str, Any] = {
    "format_version": "1.7",
    "nodes": {
        "w-1": {"failures": 1, "at": NOW, "outcome": "not_back", "firmware": "2.1"},
        "w-2": {"failures": 2, "at": NOW, "outcome": "not_back", "firmware": "2.2"},
    },
    "versions": {"4152.2.0": {"nodes": ["w-1"], "at": NOW, "ticket": "OPS-7"}},
    "pause": {"by": "ann", "reason": "sale", "scope": "db"},
    "calendar": {"frozen": ["2026-12-24"]},
}


def fail(memory: Memory) -> Memory:
    """The version of w-1 fails on another node as well, and w-2 succeeds."""
    versions = {"4152.2.0": VersionFailures(("w-1", "w-3"), NOW, held_since=NOW)}
    failed = NodeFailures(1, NOW, "not_back", version="4152.2.0")
    return replace(memory, nodes={"w-1": memory.nodes["w-1"], "w-3": failed}, versions=versions)


def remembered(server: StandaloneApi, api: ClusterApi, change: Change) -> dict[str, Any]:
    """What is stored after this version has changed the memory of a newer one."""
    text = json.dumps(OF_A_NEWER_VERSION)
    put(server, CONFIGMAPS, config_map(data={"memory.json": text}))
    change_memory(api, NAMESPACE, change)
    found = stored(server, CONFIGMAPS, MEMORY_NAME, NAMESPACE)["data"]["memory.json"]
    return cast("dict[str, Any]", json.loads(found))


@pytest.mark.in_memory
def test_what_only_a_newer_version_knows_survives_a_write(
    server: StandaloneApi, api: ClusterApi
) -> None:
    after = remembered(server, api, fail)
    assert after["format_version"] == "1.7"
    assert after["calendar"] == {"frozen": ["2026-12-24"]}
    assert after["pause"] == OF_A_NEWER_VERSION["pause"]
    assert after["nodes"]["w-1"]["firmware"] == "2.1"
    assert after["nodes"].keys() == {"w-1", "w-3"}
    assert after["versions"]["4152.2.0"]["ticket"] == "OPS-7"
    assert after["versions"]["4152.2.0"]["nodes"] == ["w-1", "w-3"]


@pytest.mark.in_memory
@pytest.mark.parametrize("pause", [None, Pause("bob", reason="disk")])
def test_another_pause_has_nothing_of_the_one_before(
    pause: Pause | None, server: StandaloneApi, api: ClusterApi
) -> None:
    after = remembered(server, api, lambda memory: replace(memory, pause=pause))
    assert "scope" not in after.get("pause", {})
    assert after["nodes"] == OF_A_NEWER_VERSION["nodes"]


@dataclass
class Answers:
    """An API server that gives this for the ConfigMap, and takes what is written in its place."""

    body: bytes
    written: list[object]

    def get(self, _path: str) -> bytes:
        return self.body

    def replace(self, _path: str, body: object) -> bytes:
        self.written.append(body)
        return b""


BODIES = {
    "no JSON": b"<html>",
    "larger than a ConfigMap can be": b'{"data": {"own": "' + b"x" * (5 << 20) + b'"}}',
    "data of another type": b'{"data": ["memory.json"]}',
    "the memory as binary data": b'{"binaryData": {"memory.json": "e30="}}',
}


@pytest.mark.parametrize("what", BODIES)
def test_a_damaged_config_map_is_refused_and_replaced(what: str) -> None:
    answers = Answers(BODIES[what], [])
    api = cast("ClusterApi", answers)
    assert_unreadable(api)
    assert (
        change_memory(api, NAMESPACE, lambda memory: memory, replace_unreadable=True) == NO_MEMORY
    )
    (written,) = answers.written
    assert cast("dict[str, Any]", written)["data"].keys() == {"memory.json"}


def test_a_memory_that_may_not_be_read_names_the_way_to_the_right() -> None:
    @dataclass
    class Denying:
        def get(self, path: str) -> bytes:
            raise ApiError("forbidden", status=403)

    memory = read_memory(cast("ClusterApi", Denying()), NAMESPACE)
    with pytest.raises(BlockedError) as refused:
        require_readable_memory(memory)
    assert "rollout manifests roles" in refused.value.hint


def test_no_config_map_and_null_data_are_an_empty_memory() -> None:
    assert read_memory(cast("ClusterApi", Answers(b'{"data": null}', [])), NAMESPACE) == Memory()
