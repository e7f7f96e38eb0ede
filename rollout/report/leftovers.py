"""What other reboot coordinators have left, as a table and as one document; and what came of taking it back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from msgspec import Meta

from rollout.execution.rollout.adopt import Adopted
from rollout.model.fleetlock import zincati_id
from rollout.model.leftovers import Adoption, Cordon, LeftLock, NodeLeftover, System
from rollout.model.rivals import Workload
from rollout.model.text import counted, printable, shortened
from rollout.report.columns import Column, table_text, wrapped

_COLUMNS = (Column("NODES", wraps=True), Column("LEFT BY"), Column("CORDON"), Column("WHAT", note=True))
_CORDONS = {Cordon.NONE: "-", Cordon.THEIRS: "theirs", Cordon.KEPT: "stays"}
_MOST = 4
_UNLOCK = "locksmithctl unlock {machine}"
_RELEASE = "ETCDCTL_API=3 etcdctl del com.coreos.airlock/groups/{group}/v1/semaphore"
# What removes a workload. kured's lock, which stands on its DaemonSet, alone says which cordons are its own.
_STOP = "kubectl -n {namespace} delete {kind} {name}"
_STOP_KURED = (
    "kubectl -n {namespace} patch daemonset {name} --type merge "
    '-p \'{{"spec":{{"template":{{"spec":{{"nodeSelector":{{"rollout-adopt":"stopped"}}}}}}}}}}\''
)


_Names = Annotated[Sequence[str], Meta(description="names of Nodes")]
_Obstacle = Annotated[str, Meta(description="why it is left as it is; else empty")]


class LeftoverFields(TypedDict):
    """What one system has left on a node."""

    node: Annotated[str, Meta(description="the Node's name")]
    system: Annotated[System, Meta(description="whose it is; of a rival its name for `--ignore-rival`")]
    annotations: Annotated[Sequence[str], Meta(description="to be removed")]
    labels: Annotated[Sequence[str], Meta(description="to be removed")]
    soft_taint: Annotated[bool, Meta(description="our own soft taint, to be removed")]
    cordon: Annotated[
        Cordon, Meta(description="`none`: not cordoned; `theirs`: it is uncordoned; `kept`: it stays cordoned")
    ]
    because: Annotated[str, Meta(description="what proves the cordon to be theirs, or why it stays; may be empty")]
    obstacle: _Obstacle


class LockFields(TypedDict):
    """A lock that one system has left."""

    system: Annotated[System, Meta(description="whose it is; of a rival its name for `--ignore-rival`")]
    object: Annotated[str, Meta(description="the DaemonSet or Lease: `kind/namespace/name`")]
    annotation: Annotated[str, Meta(description="with the lock; empty where the object is the lock")]
    holder: Annotated[str, Meta(description="as it stands in the lock; empty where it is free")]
    nodes: Annotated[Sequence[str], Meta(description="names of Nodes that it is held for, as far as they are known")]
    obstacle: _Obstacle


class RunningFields(TypedDict):
    """A workload of a system that has left something, and still runs."""

    system: Annotated[str, Meta(description="its name for `--ignore-rival`")]
    object: Annotated[str, Meta(description="`kind/namespace/name`")]
    command: Annotated[str, Meta(description="that stops it; in the order in which they are to be run")]


class ElsewhereFields(TypedDict):
    """A lock that may be in etcd, which is not seen from here."""

    system: Annotated[Literal["locksmith", "airlock"], Meta(description="whose it would be")]
    node: Annotated[str, Meta(description="the Node's name")]
    holder: Annotated[str, Meta(description="by which its host is known there")]
    command: Annotated[str, Meta(description="that releases it")]


class LeftFields(TypedDict):
    """A node or a lock that could not be cleaned."""

    object: Annotated[str, Meta(description="the Node's name, or the lock's object")]
    message: Annotated[str, Meta(description="why")]


class AdoptReport(TypedDict):
    """What other reboot coordinators have left, and what was done about it."""

    nodes: Annotated[Sequence[LeftoverFields], Meta(description="an entry a node and system")]
    locks: Annotated[Sequence[LockFields], Meta(description="that systems have left")]
    running: Annotated[Sequence[RunningFields], Meta(description="what is to be stopped first")]
    elsewhere: Annotated[
        Sequence[ElsewhereFields], Meta(description="what releases locks in etcd, should there be any")
    ]
    unseen: Annotated[Sequence[str], Meta(description="sentences on what this user may not read")]
    done: Annotated[bool, Meta(description="something was to be cleaned, and it was begun")]
    cleaned: _Names
    uncordoned: _Names
    released: Annotated[Sequence[str], Meta(description="locks that were removed, by their objects")]
    left: Annotated[Sequence[LeftFields], Meta(description="what was to be cleaned, and is not")]


def leftovers_text(adopted: Adoption, width: int | None = None) -> str:
    """The rows, alike ones together, the locks, what still runs, and what cannot be seen from here."""
    alike: dict[Sequence[str], list[str]] = {}
    for row in adopted.leftovers:
        alike.setdefault(_cells(row), []).append(row.node)
    rows = [(shortened(names, len(names) if width is None else _MOST), *cells) for cells, names in alike.items()]
    table = table_text(_COLUMNS, rows, width) if rows else ""
    lines = [*(_lock_sentence(lock) for lock in adopted.locks), *_running_lines(adopted), *_unseen_lines(adopted)]
    # commands are to be copied: their lines are indented, and stay whole
    whole = (line if line.startswith(" ") else wrapped(line, width) for line in lines)
    return "\n\n".join(filter(None, (table, "\n".join(whole))))


def _cells(row: NodeLeftover) -> Sequence[str]:
    return row.system, _CORDONS[row.cordon], printable("; ".join(_sentences(row)))


def _sentences(row: NodeLeftover) -> Iterator[str]:
    if row.obstacle:
        yield f"left as it is: {row.obstacle}"
        return
    if names := _names(row):
        yield f"remove {names}"
    if row.taint:
        yield "remove the soft taint"
    if row.cordon is Cordon.THEIRS:
        yield f"uncordon: {row.because}"
    elif row.because:
        yield row.because


def _names(row: NodeLeftover) -> str:
    """`3 annotations (a, b, c), 1 label (d)`, without their common prefixes."""
    parts = (("annotation", row.annotations), ("label", row.labels))
    return ", ".join(
        f"{counted(len(names), word)} ({shortened([name.rpartition('/')[2] for name in names], _MOST)})"
        for word, names in parts
        if names
    )


def _lock_sentence(lock: LeftLock) -> str:
    where = f"{lock.place} {lock.annotation}".strip()
    whom = ", ".join(lock.nodes) or lock.holder
    held = f"held for {whom}" if whom else "free"
    return printable(f"Lock of {lock.system}, {where}: {held}; {lock.obstacle or 'remove it'}.")


def _running_lines(adopted: Adoption) -> Iterator[str]:
    for workload, command in removals(adopted.running):
        yield f"{workload.coordinator.rival} still runs: {printable(workload.place)}. Stop it:"
        yield f"  {printable(command)}"


def removals(running: Iterable[Workload]) -> Iterator[tuple[Workload, str]]:
    """The workloads in the order in which they go, each with its command: those that decide before their agents."""
    for workload in sorted(running, key=lambda workload: workload.agent):
        coordinator = workload.coordinator
        command = _STOP_KURED if coordinator.rival == System.KURED else _STOP
        fields = {"namespace": coordinator.namespace, "kind": coordinator.kind.lower(), "name": coordinator.name}
        yield workload, command.format(**fields)


def _unseen_lines(adopted: Adoption) -> Iterator[str]:
    yield from (printable(sentence) for sentence in adopted.unseen)
    machines = list(adopted.machines.values())
    machine = machines[0] if len(machines) == 1 else "MACHINE_ID"
    yield "Locks in etcd cannot be seen from here. If locksmith or airlock kept any, on a host that reaches that etcd:"
    yield f"  locksmith: locksmithctl status; {_UNLOCK.format(machine=printable(machine))}"
    yield f"  airlock:\n    {_RELEASE.format(group='GROUP')}"


def nothing_text(shown: Adoption) -> str:
    """Where there is nothing that may be cleaned."""
    return "None of this can be cleaned now." if shown.leftovers or shown.locks else "Nothing to clean up."


def adopted_text(adopted: Adopted, shown: Adoption) -> str:
    """What came of it, and what is left to persons."""
    lines = [f"{counted(len(adopted.cleaned), 'node')} cleaned" + _of(adopted.cleaned)]
    if adopted.uncordoned:
        lines.append(f"Uncordoned: {shortened(adopted.uncordoned)}.")
    if adopted.released:
        lines.append(f"Locks removed: {shortened(adopted.released)}.")
    if kept := kept_cordons(shown, adopted.uncordoned):
        uncordon = " ".join(printable(name) for name in kept)
        names = shortened([f"{name} ({why})" for name, why in kept.items()], _MOST)
        lines.append(f"Still cordoned: {names}. Once it is not needed: kubectl uncordon {uncordon}")
    lines += [f"Left as it is: {printable(name)}: {printable(why)}" for name, why in adopted.left.items()]
    return "\n".join((*lines, "Next: rollout status"))


def _of(names: Sequence[str]) -> str:
    return f": {shortened(names)}." if names else "."


def kept_cordons(shown: Adoption, uncordoned: Iterable[str]) -> Mapping[str, str]:
    """Nodes that something was left on and that stay cordoned, with why."""
    kept = {row.node: row.because for row in reversed(shown.leftovers) if row.cordon is Cordon.KEPT}
    return {name: why for name, why in reversed(kept.items()) if name not in set(uncordoned)}


def leftovers_document(shown: Adoption, adopted: Adopted | None) -> AdoptReport:
    """The same for programs; `adopted` None where nothing was done."""
    result = adopted or Adopted()
    return {
        "nodes": [_node_fields(row) for row in shown.leftovers],
        "locks": [_lock_fields(lock) for lock in shown.locks],
        "running": [
            {"system": workload.coordinator.rival, "object": workload.place, "command": command}
            for workload, command in removals(shown.running)
        ],
        "elsewhere": [*_elsewhere(shown.machines)],
        "unseen": shown.unseen,
        "done": adopted is not None,
        "cleaned": result.cleaned,
        "uncordoned": result.uncordoned,
        "released": result.released,
        "left": [{"object": name, "message": why} for name, why in result.left.items()],
    }


def _node_fields(row: NodeLeftover) -> LeftoverFields:
    return {
        "node": row.node,
        "system": row.system,
        "annotations": row.annotations,
        "labels": row.labels,
        "soft_taint": row.taint,
        "cordon": row.cordon,
        "because": row.because,
        "obstacle": row.obstacle,
    }


def _lock_fields(lock: LeftLock) -> LockFields:
    return {
        "system": lock.system,
        "object": lock.place,
        "annotation": lock.annotation,
        "holder": lock.holder,
        "nodes": lock.nodes,
        "obstacle": lock.obstacle,
    }


def _elsewhere(machines: Mapping[str, str]) -> Iterator[ElsewhereFields]:
    """What releases locks that only etcd knows of, by each node's names there."""
    for node, machine in machines.items():
        yield {"system": "locksmith", "node": node, "holder": machine, "command": _UNLOCK.format(machine=machine)}
        yield {
            "system": "airlock",
            "node": node,
            "holder": zincati_id(machine),
            "command": _RELEASE.format(group="GROUP"),
        }
