"""Other people's hands in a lab: what somebody does beside a rollout, at once or at a given phase
of it.
"""

import asyncio
import base64
import functools
import gzip
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from rollout.lab.api.lifecycle import with_defaults
from rollout.lab.api.resources import CONFIGMAPS, NODES, PODS
from rollout.lab.api.store import Change, Json
from rollout.lab.hosts.faults import HEALTHY, HostFaults, SshFault
from rollout.lab.lab import Lab
from rollout.lab.objects import LAB_PREFIX, annotations_of, is_daemon, is_mirror, spec_of
from rollout.lab.world.host import with_readiness
from tests.planning.test_plan_documents import forged
from tests.state import PREFIX, node_of, write


def _marks_of(node: Json) -> dict[str, str]:
    annotations = node["metadata"].get("annotations", {})
    return {
        key.removeprefix(PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }


def at_phase(lab: Lab, phase: str, act: Callable[[str], object], *, node: str = "") -> None:
    """Do something, once and within the lab's loop, when a Node's marks name this phase; `act`
    hears which Node's.
    """
    done: list[str] = []

    def changed(change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if (
            change.resource is NODES
            and not done
            and node in ("", name)
            and _marks_of(change.obj).get("phase") == phase
        ):
            done.append(name)
            # After the write that is under way has been answered.
            asyncio.get_running_loop().call_soon(act, name)

    lab.call(lambda: lab.store.subscribe(changed))


def cordon(lab: Lab, node: str, *, cordoned: bool) -> None:
    """As kubectl does; in the lab's loop."""
    found = node_of(lab, node)
    rest = {key: value for key, value in spec_of(found).items() if key != "unschedulable"}
    lab.store.put(
        NODES, {**found, "spec": {**rest, **({"unschedulable": True} if cordoned else {})}}
    )


def cordon_for_good(lab: Lab, node: str) -> None:
    """Cordon a node without a time, so that it does not count as away; in the lab's loop."""
    found = node_of(lab, node)
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    taints = [*(spec_of(found).get("taints") or ()), taint]
    spec = {**spec_of(found), "unschedulable": True, "taints": taints}
    lab.store.put(NODES, {**found, "spec": spec})


def refill(lab: Lab, node: str) -> str:
    """The name of a pod of some controller that is bound to the node, and runs there; in the lab's
    loop.
    """
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Game",
        "name": "chess",
        "uid": "chess",
        "controller": True,
    }
    spec = {"nodeName": node, "containers": [{"name": "app", "image": "registry.example/app:1.0"}]}
    meta = {
        "name": f"late-{uuid4().hex[:8]}",
        "namespace": "default",
        "ownerReferences": [owner],
        "labels": {"app": "late"},
    }
    lab.store.create(PODS, with_defaults(PODS, {"metadata": meta, "spec": spec}))
    return str(meta["name"])


def set_well(lab: Lab, node: str, name: str, *, well: bool) -> None:
    """Whether pods that stay on the node, whose names begin so, can be ready; in the lab's loop.

    As a container that crashes: the pod is there, and is not ready, whatever its host does; well
    again, it is ready.
    """
    mark = {LAB_PREFIX + "ready": "never"}
    for pod in list(lab.store.pods_on(node)):
        if (is_mirror(pod) or is_daemon(pod)) and pod["metadata"]["name"].startswith(name):
            rest = {key: value for key, value in annotations_of(pod).items() if key not in mark}
            marked = {
                **pod,
                "metadata": {**pod["metadata"], "annotations": rest if well else {**rest, **mark}},
            }
            lab.store.put(PODS, with_readiness(marked, lab.world.cluster.now(), ready=well))


def close_ssh(lab: Lab, node: str) -> None:
    """Nothing listens on the host's SSH port; in the lab's loop."""
    lab.machines[node].inflict(HostFaults(ssh=SshFault.CLOSED))


def open_ssh(lab: Lab, node: str) -> None:
    """It does again; in the lab's loop."""
    lab.machines[node].inflict(HEALTHY)


def later(seconds: float, act: Callable[[], object]) -> None:
    """Do it after so many real seconds; in the lab's loop."""
    asyncio.get_running_loop().call_later(seconds, act)


def written(folder: Path, name: str, text: str) -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text)
    return path


# Ways in which the record of a rollout can stop being one: by whoever may write ConfigMaps, or by
# another version.


BLOCK = b"a" * 1_000_000
BLOCKS = 600


Damage = Callable[[Json], Json]


def put_record(lab: Lab, wanted: Json | None) -> None:
    """Have this stand as the record; None: none."""

    def put() -> None:
        if lab.store.get(CONFIGMAPS, "node-rollout", "kube-system") is not None:
            lab.store.remove(CONFIGMAPS, "node-rollout", "kube-system")
        if wanted is not None:
            metadata = {
                key: wanted["metadata"][key] for key in ("name", "namespace", "annotations")
            }
            lab.store.create(CONFIGMAPS, {**wanted, "metadata": metadata})

    lab.call(put)


def mark(lab: Lab, node: str, **marks: str | None) -> None:
    """Write these of our annotations on a Node, by their names with underscores; None takes one
    away.
    """
    write(
        lab,
        node,
        "annotations",
        **{PREFIX + name.replace("_", "-"): value for name, value in marks.items()},
    )


def sealed(plan: dict[str, Any]) -> str:
    """The document of a plan, with the checksum that goes with what it says."""
    return forged(plan).decode()


def packed(document: bytes) -> str:
    return base64.b64encode(gzip.compress(document)).decode()


@functools.cache
def bomb() -> str:
    """600 MB that are small when packed: one gzip member, in which one packed block stands again
    and again.
    """
    start = b'{"format_version":"1.0","x":"'
    end = b'"}'
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    head, block = (
        packer.compress(part) + packer.flush(zlib.Z_FULL_FLUSH) for part in (start, BLOCK)
    )
    checksum = functools.reduce(
        lambda crc, part: zlib.crc32(part, crc), [start, *[BLOCK] * BLOCKS, end], 0
    )
    trailer = struct.pack("<LL", checksum, len(start) + len(BLOCK) * BLOCKS + len(end))
    stream = head + block * BLOCKS + packer.compress(end) + packer.flush()
    return base64.b64encode(gzip.compress(b"")[:10] + stream + trailer).decode()


def _plan(text: str) -> Damage:
    return lambda record: {**record, "data": {"plan.json": text}}


def _edited(old: str, new: str) -> Damage:
    return lambda record: {
        **record,
        "data": {"plan.json": record["data"]["plan.json"].replace(old, new)},
    }


def _binary(body: str) -> Damage:
    return lambda record: {**record, "data": {}, "binaryData": {"plan.json.gz": body}}


def _annotated(name: str, value: str) -> Damage:
    def damage(record: Json) -> Json:
        meta = record["metadata"]
        return {
            **record,
            "metadata": {**meta, "annotations": {**meta["annotations"], PREFIX + name: value}},
        }

    return damage


def _with(part: str, text: str) -> Damage:
    return lambda record: {**record, "data": {**record["data"], part: text}}


def _new_rule(record: Json) -> Json:
    plan = json.loads(record["data"]["plan.json"])
    plan["policy"]["gates"]["quorum"] = "3"
    document = sealed(plan)
    return _annotated("run", json.loads(document)["plan_id"])(
        {**record, "data": {"plan.json": document}}
    )


def _with_selector(record: Json) -> Json:
    plan = json.loads(record["data"]["plan.json"])
    plan["policy"]["gates"]["blocking_pods"] = ["((("]
    return {**record, "data": {"plan.json": sealed(plan)}}


def _health_of(workload: str) -> str:
    fields = {
        "kind": "ReplicaSet",
        "namespace": "shop",
        "name": workload,
        "uid": "u",
        "desired": 1,
        "ready": 1,
    }
    return json.dumps({"workloads": {"u": fields}, "ready_nodes": []})


# What is done to the record, and what is said of it.
PLAIN: dict[str, tuple[Damage, str]] = {
    "no plan": (_plan(""), "its plan is not a rollout plan"),
    "a login page": (_plan("<html>sign in</html>"), "its plan is not a rollout plan"),
    "cut off": (
        lambda record: _plan(record["data"]["plan.json"][:400])(record),
        "its plan is not a rollout plan",
    ),
    "edited": (_edited('"max_failures": 1', '"max_failures": 9'), "its plan has been edited"),
    "a newer format": (
        _edited('"format_version": "1.0"', '"format_version": "2.0"'),
        "its plan has the plan format 2.0",
    ),
    "a newer rule": (_new_rule, "a setting that this program does not know: policy.gates.quorum"),
    "no selector": (
        _with_selector,
        "its plan is not a plan made by rollout: '(((' is not a label selector",
    ),
    "deep": (_plan('{"format_version":"1.0","x":' + "[" * 200_000), "its plan"),
    "many values": (
        _plan('{"format_version":"1.0","x":[' + "1," * 1_000_001 + "1]}"),
        "more than 1000000 values",
    ),
    "a newer part": (_with("quorum.json", "{}"), "its key 'quorum.json'"),
    "no health": (_with("health.json", "{"), "health.json"),
    "an endless number of waves": (
        _with("health.json", '{"wave": 1' + "0" * 400 + "}"),
        "health.json",
    ),
    "a negative wave": (_with("health.json", '{"wave": -1}'), "health.json"),
    "a path as workload": (
        _with("health.json", _health_of("../../../../api/v1/secrets")),
        "not a workload name",
    ),
    "a path as id": (
        _annotated("run", "../../../../evil"),
        "'../../../../evil' is not a rollout ID",
    ),
    "a newer annotation": (_annotated("quorum", "3"), "its annotation node-rollout.dev/quorum"),
    "half ended": (
        _annotated("ended", "maybe"),
        "its annotation node-rollout.dev/ended is 'maybe'",
    ),
}


PACKED: dict[str, tuple[Damage, str]] = {
    "no base64": (_binary("%%%"), "ConfigMap kube-system/node-rollout"),
    "no gzip": (_binary(base64.b64encode(b"\x1f\x8b hello").decode()), "plan.json.gz"),
    "cut off gzip": (
        _binary(base64.b64encode(gzip.compress(b"{}" * 900)[:-9]).decode()),
        "plan.json.gz is truncated",
    ),
    "more after its end": (
        lambda record: _binary(
            base64.b64encode(
                gzip.compress(record["data"]["plan.json"].encode()) + b"and more"
            ).decode()
        )(record),
        "plan.json.gz is truncated, or has trailing data",
    ),
    "two plans": (
        lambda record: {**record, "binaryData": {"plan.json.gz": packed(b"{}")}},
        "it contains two plans",
    ),
    "a bomb": (
        lambda record: {**record, "data": {}, "binaryData": {"plan.json.gz": bomb()}},
        "larger than 32 MiB, unpacked",
    ),
}
