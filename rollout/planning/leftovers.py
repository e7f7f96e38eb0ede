"""What other reboot coordinators have left, and what of it may be taken back. Pure.

A cordon is a system's own where its marks say so, or where the API server has noted that whoever wrote these marks
wrote the cordon, too. Everything else may be a person's, and stays; so does a cordon that a person's tool wrote on a
node whose marks are the system's own writing: they speak of an earlier one.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.fleetlock import is_fleetlock_run, zincati_id
from rollout.model.leftovers import (
    Adoption,
    Cordon,
    HeldLease,
    LeftLock,
    NodeLeftover,
    Standing,
    System,
    WrittenNode,
)
from rollout.model.node_marks import is_begun, is_deferred, misunderstanding
from rollout.model.progress import Phase
from rollout.model.rivals import LockHolder, Workload
from rollout.model.soft_taint import has_soft_taint
from rollout.model.text import excerpt
from rollout.planning.rivals import marks_on

# A pause is a person's word, and rollout heeds it.
_KEPT = frozenset(marks.RIVAL_PAUSES)
_KURED_NAMES = frozenset({marks.KURED_IN_PROGRESS, marks.KURED_NEEDED})
# The field managers of the coordinators: their programs' names. KRM's requests name no client at all.
_MANAGERS = {
    System.FLUO: "update-agent",
    System.CLUO: "update-agent",
    System.KURED: "kured",
    System.KRM: "unknown",
    System.CRO: "reboot-agent",
    System.FLEETLOCK: "fleetlock",
}
# Names that no other program has: they prove a cordon where no mark is left beside it.
_ALONE = frozenset({System.KURED, System.FLEETLOCK})
# The field managers of people.
_PEOPLE = ("kubectl", "oc", "k9s", "lens", "openlens", "headlamp", "mozilla", "dashboard")


_LONGEST_NAME = 40


@dataclass(frozen=True, slots=True)
class _Locks:
    """The locks that are held for one node; `kured_writer` is the field manager that wrote kured's."""

    kured: LockHolder | None = None
    kured_writer: str = ""
    leases: tuple[HeldLease, ...] = ()


def adoption(standing: Standing, selected: Collection[str], *, whole: bool) -> Adoption:
    """What is left on the selected nodes, and the locks that are held for them.

    Locks that are free, or held for no known node, belong to the `whole` cluster.
    """
    names = {written.node.name for written in standing.nodes}
    hosts = _hosts(standing.nodes)
    nodes = [written for written in standing.nodes if written.node.name in selected]
    locks_of = _locks_by_node(standing, hosts)
    leftovers = [
        row for written in nodes for row in _node_leftovers(written, locks_of.get(written.node.name, _Locks()))
    ]
    every_lock = (*_kured_locks(standing.workloads, names), *_leases(standing.leases, hosts))
    locks = tuple(_shared(lock, selected) for lock in every_lock if _is_meant(lock, selected, whole=whole))
    systems = {row.system for row in leftovers} | {lock.system for lock in locks}
    return Adoption(
        tuple(leftovers),
        locks,
        tuple(workload for workload in standing.workloads if _keeps_on(workload, systems)),
        standing.unseen,
        {written.node.name: written.node.machine_id for written in nodes},
    )


def _node_leftovers(written: WrittenNode, locks: _Locks) -> tuple[NodeLeftover, ...]:
    """A row a system that has left something on the node."""
    rows = [row for system, names in _MARKS.items() if (row := _of_rival(written, system, names(written.node), locks))]
    rows += [row] if (row := _ours(written)) else []
    if any(row.cordon is Cordon.THEIRS and not row.obstacle for row in rows):
        # one proof is enough; that the others have none says nothing then
        rows = [replace(row, cordon=Cordon.NONE, because="") if row.cordon is Cordon.KEPT else row for row in rows]
    return tuple(rows)


def _of_rival(written: WrittenNode, system: System, names: Collection[str], locks: _Locks) -> NodeLeftover | None:
    node = written.node
    cordon, because = _cordon(written, system, names, locks)
    has_lock = bool(locks.kured if system is System.KURED else locks.leases if system is System.FLEETLOCK else None)
    is_lone_cordon = system in _ALONE and written.cordoned_by == _MANAGERS[system]
    if not names and not (node.unschedulable and (has_lock or is_lone_cordon)):
        return None
    annotations = tuple(sorted(name for name in names if name in node.annotations))
    labels = tuple(sorted(name for name in names if name in node.labels))
    return NodeLeftover(node.name, system, annotations, labels, cordon, because)


def _cordon(written: WrittenNode, system: System, names: Collection[str], locks: _Locks) -> tuple[Cordon, str]:
    """Whose the node's cordon is, and what says so."""
    writer = written.cordoned_by
    if not written.node.unschedulable:
        return Cordon.NONE, ""
    word = _OWN_WORD.get(system, _no_word)(written, locks)
    if _is_person(writer) and (word is None or (word.writer and not _is_person(word.writer))):
        return Cordon.KEPT, f"{writer} cordoned it"
    if word is not None:
        return word.cordon, word.because
    if writer == _MANAGERS.get(system):
        common = sorted(name for name in names if written.written_by.get(name) == writer)
        if common or system in _ALONE:
            return (
                Cordon.THEIRS,
                f"{_named(writer, system)} wrote both the cordon and {common[0]}"
                if common
                else f"{writer} cordoned it",
            )
    return Cordon.KEPT, f"nothing proves that {system} cordoned it"


def _named(writer: str, system: System) -> str:
    return "its client, which gives no name," if system is System.KRM else writer


def whose_cordon(node: Node) -> tuple[str, str]:
    """Who cordoned a node, as far as its own marks and their writers tell: half a sentence.

    First the system that `rollout adopt` cleans up after; it is empty of a person, and where nothing is known.
    """
    rows = _node_leftovers(WrittenNode(node, node.cordoned_by, node.written_by), _Locks())
    proof = next((row for row in rows if row.cordon is Cordon.THEIRS and not row.obstacle), None)
    if proof:
        return proof.system, f"cordoned by {proof.system}" + ("" if _is_lone(proof, node) else f": {proof.because}")
    in_hand = ", ".join(rival for rival, _ in marks_on(node))
    if _is_person(node.cordoned_by):
        marked = f"; {in_hand} left marks on it: rollout adopt" if in_hand else ""
        return "", f"cordoned by an operator with {node.cordoned_by}{marked}"
    if in_hand:
        return in_hand, f"cordoned, most likely by {in_hand}, whose marks stand on it"
    is_named = node.cordoned_by not in ("", _MANAGERS[System.KRM])
    return "", f"cordoned by {excerpt(node.cordoned_by, _LONGEST_NAME) if is_named else 'an operator'}"


def _is_lone(row: NodeLeftover, node: Node) -> bool:
    """Whether all there is to say is that its program wrote the cordon."""
    return row.because == f"{node.cordoned_by} cordoned it"


def _is_person(manager: str) -> bool:
    return manager.lower().partition("-")[0] in _PEOPLE


@dataclass(frozen=True, slots=True)
class _Word:
    """What a system itself has noted of a cordon, and the field manager that wrote it; empty where that is unknown."""

    cordon: Cordon
    because: str
    writer: str = ""


def _agents_word(prefix: str) -> Callable[[WrittenNode, _Locks], _Word | None]:
    name = prefix + marks.MADE_UNSCHEDULABLE

    def word(written: WrittenNode, _locks: _Locks) -> _Word | None:
        if written.node.annotations.get(name) != "true":
            return None
        return _Word(Cordon.THEIRS, f"{marks.MADE_UNSCHEDULABLE} is true", written.written_by.get(name, ""))

    return word


def _kureds_word(_written: WrittenNode, locks: _Locks) -> _Word | None:
    if locks.kured is None or locks.kured.is_by_hand or locks.kured.was_cordoned is None:
        return None
    if locks.kured.was_cordoned:
        return _Word(Cordon.KEPT, "kured's lock says that it was cordoned before")
    return _Word(Cordon.THEIRS, "kured's lock says that it was not cordoned before", locks.kured_writer)


def _our_word(written: WrittenNode, _locks: _Locks) -> _Word | None:
    name = marks.CORDONED_BY_US
    if written.node.annotations.get(name) == "true":
        return _Word(Cordon.THEIRS, f"{name} is true", written.written_by.get(name, ""))
    return _Word(Cordon.KEPT, "it was cordoned before the rollout")


def _no_word(_written: WrittenNode, _locks: _Locks) -> _Word | None:
    return None


_OWN_WORD: Mapping[System, Callable[[WrittenNode, _Locks], _Word | None]] = {
    System.FLUO: _agents_word(marks.FLUO_PREFIX),
    System.CLUO: _agents_word(marks.CLUO_PREFIX),
    System.KURED: _kureds_word,
    System.ROLLOUT: _our_word,
}


def _under(prefix: str) -> Callable[[Node], frozenset[str]]:
    def names(node: Node) -> frozenset[str]:
        """Annotations and labels; the label by which we ourselves ask for checks is none of theirs."""
        kept = {*_KEPT, node.annotations.get(marks.HOOK_LABEL, "")}
        return frozenset(name for name in (*node.annotations, *node.labels) if name.startswith(prefix)) - kept

    return names


def _kured_names(node: Node) -> frozenset[str]:
    return _KURED_NAMES.intersection(node.annotations)


def _krm_names(node: Node) -> frozenset[str]:
    return frozenset({marks.KRM_STATUS}).intersection(node.annotations)


def _fleetlock_names(_node: Node) -> frozenset[str]:
    return frozenset()


_MARKS: Mapping[System, Callable[[Node], frozenset[str]]] = {
    System.FLUO: _under(marks.FLUO_PREFIX),
    System.CLUO: _under(marks.CLUO_PREFIX),
    System.KURED: _kured_names,
    System.KRM: _krm_names,
    System.CRO: _under(marks.CRO_PREFIX),
    System.FLEETLOCK: _fleetlock_names,
}


def _ours(written: WrittenNode) -> NodeLeftover | None:
    """What an earlier rollout of ours has left; a node that waits for the next run, with its taint, is nothing left."""
    node = written.node
    taint = has_soft_taint(node) and not is_deferred(node)
    if not is_begun(node):
        return NodeLeftover(node.name, System.ROLLOUT, taint=True) if taint else None
    annotations = tuple(name for name in marks.TRANSIENT if name in node.annotations)
    cordon, because = _cordon(written, System.ROLLOUT, annotations, _Locks())
    labels = tuple(_our_labels(node))
    return NodeLeftover(node.name, System.ROLLOUT, annotations, labels, cordon, because, taint, _our_obstacle(node))


def _our_labels(node: Node) -> Iterator[str]:
    """Those that our marks say we have set."""
    hook = node.annotations.get(marks.HOOK_LABEL, "")
    if hook in node.labels and hook.endswith(("/before-reboot", "/after-reboot")):
        yield hook
    if node.annotations.get(marks.EXCLUDED_BY_US) == "true" and marks.EXCLUDED_FROM_BALANCERS in node.labels:
        yield marks.EXCLUDED_FROM_BALANCERS


def _our_obstacle(node: Node) -> str:
    if why := misunderstanding(node):
        return f"{why}: go on with the version of rollout that wrote it"
    if node.annotations.get(marks.PHASE) != Phase.FAILED:
        return "its rollout is unfinished: rollout resume goes on with it, rollout abort undoes it"
    if is_fleetlock_run(node.annotations[marks.RUN]):
        return f"the FleetLock server left it: rollout fleetlock release {node.name}, or rollout abort, gives it back"
    return "" if node.is_ready else "a rollout failed on it, and it is not Ready: fix it first"


def _hosts(nodes: Iterable[WrittenNode]) -> Mapping[str, str]:
    """Nodes by what Zincati calls their hosts; of machine ids that two Nodes report, nothing is known."""
    names: dict[str, list[str]] = {}
    for written in nodes:
        names.setdefault(zincati_id(written.node.machine_id), []).append(written.node.name)
    return {host: nodes[0] for host, nodes in names.items() if host and len(nodes) == 1}


def _locks_by_node(standing: Standing, hosts: Mapping[str, str]) -> Mapping[str, _Locks]:
    kured = {holder.name: (holder, workload) for workload in standing.workloads for holder in workload.holders}
    leases: dict[str, list[HeldLease]] = {}
    for lease in standing.leases:
        leases.setdefault(hosts.get(lease.holder, ""), []).append(lease)
    locks = {name: _Locks(holder, workload.lock_writer) for name, (holder, workload) in kured.items()}
    return {
        name: replace(locks.get(name, _Locks()), leases=tuple(leases.get(name, ())))
        for name in {*kured, *leases} - {""}
    }


def _kured_locks(workloads: Iterable[Workload], names: Collection[str]) -> Iterator[LeftLock]:
    for workload in workloads:
        if not workload.holders:
            continue
        holders = tuple(holder.name for holder in workload.holders)
        by_hand = any(holder.is_by_hand for holder in workload.holders)
        coordinator = workload.coordinator
        yield LeftLock(
            System.KURED,
            "daemonset",
            coordinator.namespace,
            coordinator.name,
            workload.lock,
            ", ".join(holders),
            tuple(holder for holder in holders if holder in names),
            workload.resource_version,
            obstacle="a person holds it: it keeps kured paused, and goes with its DaemonSet" if by_hand else "",
        )


def _leases(leases: Iterable[HeldLease], hosts: Mapping[str, str]) -> Iterator[LeftLock]:
    for lease in leases:
        nodes = (hosts[lease.holder],) if lease.holder in hosts else ()
        yield LeftLock(
            System.FLEETLOCK,
            "lease",
            lease.namespace,
            lease.name,
            "",
            lease.holder,
            nodes,
            lease.resource_version,
            lease.uid,
        )


def _is_meant(lock: LeftLock, selected: Collection[str], *, whole: bool) -> bool:
    return whole or any(node in selected for node in lock.nodes)


def _shared(lock: LeftLock, selected: Collection[str]) -> LeftLock:
    """A lock that is held for other nodes, too, is the proof of their cordons: it goes with the last of them."""
    others = [node for node in lock.nodes if node not in selected]
    if lock.obstacle or not others:
        return lock
    return replace(lock, obstacle=f"it stays: it is held for {', '.join(others)}, too, not selected here")


def _keeps_on(workload: Workload, systems: Collection[System]) -> bool:
    return workload.running and any(workload.coordinator.rival == system for system in systems)
