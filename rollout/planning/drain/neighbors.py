"""Inter-pod affinity, anti-affinity and topology spread, counted as pods move."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import Struct

from rollout.model.cluster import LabelSelector, Node, Pod
from rollout.model.drain_finding import PlacementRule
from rollout.model.placement import NodeTerm, Placement, PodTerm, Spread, Toleration
from rollout.model.selectors import first_in_requirement, has_labels


class TopologyDomains(Struct, frozen=True):
    topology: str
    # Nodes that do not count, or lack the key, are missing.
    by_node: Mapping[str, str]
    values: frozenset[str]

    @classmethod
    def of(cls, topology: str, nodes: Iterable[Node]) -> "TopologyDomains":
        by_node = {node.name: node.labels[topology] for node in nodes if topology in node.labels}
        return cls(topology, by_node, frozenset(by_node.values()))

    def with_nodes_besides(self, cordoned: frozenset[str]) -> frozenset[str]:
        if not cordoned:
            return self.values
        return frozenset(value for node, value in self.by_node.items() if node not in cordoned)


@dataclass(slots=True)
class Tally:
    """How many pods that a rule selects run in each domain."""

    domains: TopologyDomains
    # With pods on nodes without a domain.
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    # How many domains have each count. The entry for 0 means nothing: domains without a first pod
    # are not listed.
    _domains_by_count: Counter[int] = field(default_factory=Counter)

    def add(self, node: str) -> None:
        self._change(node, 1)

    def remove(self, node: str) -> None:
        self._change(node, -1)

    def _change(self, node: str, change: int) -> None:
        self.total += change
        domain = self.domains.by_node.get(node)
        if domain is None:
            return
        before = self.counts.get(domain, 0)
        after = before + change
        self.counts[domain] = after
        self._domains_by_count[before] -= 1
        self._domains_by_count[after] += 1
        if not self._domains_by_count[before]:
            del self._domains_by_count[before]

    def smallest_count(self) -> int:
        if self._has_empty_domain():
            return 0
        return min(self._nonzero_counts(), default=0)

    def has_domain_with_at_most(self, most: int) -> bool:
        if most < 0:
            return False
        return self._has_empty_domain() or any(count <= most for count in self._nonzero_counts())

    def _nonzero_counts(self) -> Iterator[int]:
        return (count for count, number in self._domains_by_count.items() if count and number > 0)

    def _has_empty_domain(self) -> bool:
        nonempty = sum(self._domains_by_count[count] for count in self._nonzero_counts())
        return len(self.domains.values) > nonempty


_ANY_NUMBER = 1 << 30


class TopologyCheck(Struct, frozen=True):
    """Requires `least` to `most` of the tally's pods in a node's domain.

    A node without the topology key passes unless the rule `needs_topology`.
    """

    tally: Tally
    rule: PlacementRule
    least: int = 0
    most: int = _ANY_NUMBER
    needs_topology: bool = False

    def admits(self, node: Node) -> bool:
        domain = node.labels.get(self.tally.domains.topology)
        if domain is None:
            return not self.needs_topology
        return self.least <= self.tally.counts.get(domain, 0) <= self.most

    @property
    def is_hopeless(self) -> bool:
        """Whether no node can pass; False does not mean that one can."""
        return self.needs_topology and not self.tally.has_domain_with_at_most(self.most)


class _Term(NamedTuple):
    topology: str
    selector: LabelSelector
    namespaces: tuple[str, ...]


class _NodeFilter(NamedTuple):
    topologies: tuple[str, ...]
    # None if neither a node selector nor an affinity is required.
    affinity: tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None] | None
    # None if taints do not matter.
    tolerations: tuple[Toleration, ...] | None


# None if all nodes count.
_DomainsKey = tuple[str, _NodeFilter | None]


class _SpreadKey(NamedTuple):
    domains: _DomainsKey
    namespace: str
    selector: LabelSelector


class _SpreadDemand(NamedTuple):
    spread: Spread
    tally: Tally
    # 1 if the constraint selects the group's own pods, else 0.
    own_count: int


class _Demands(Struct, frozen=True):
    """What a group of pods requires of its neighbors.

    The tallies count the pods that anti-affinity (`repulsions`), affinity (`attractions`) and
    topology spread select.
    """

    repulsions: tuple[Tally, ...]
    attractions: tuple[Tally, ...]
    attracts_itself: bool
    spreads: tuple[_SpreadDemand, ...]


@dataclass(slots=True, eq=False)
class _PodGroup:
    namespace: str
    labels: Mapping[str, str]
    placement: Placement
    node_selector: Mapping[str, str]
    pods: list[Pod] = field(default_factory=list)
    counted_by: list[Tally] = field(default_factory=list)
    # Counts pods whose anti-affinity selects these.
    repelled_by: list[Tally] = field(default_factory=list)
    # None until a pod of the group has to be placed.
    demands: _Demands | None = None

    def matches(self, node: Node) -> bool:
        if not has_labels(node.labels, self.node_selector.items()):
            return False
        return self.placement.admits(node.name, node.labels)


_LabelKey = tuple[str, str, str]


class Neighbors:
    """Checks pods' affinity and spread as pods move.

    Pods with equal rules form a group. A group is `repelled_by` the tallies of other groups whose
    anti-affinity selects it.
    """

    def __init__(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[Node],
        namespace_labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._nodes = nodes
        self._namespace_labels = namespace_labels or {}
        self._groups = _groups_of(pods)
        self.has_rules = bool(self._groups)
        self._group_of = {pod.uid: group for group in self._groups for pod in group.pods}
        self._by_label: dict[_LabelKey, list[_PodGroup]] = defaultdict(list)
        self._by_namespace: dict[str, list[_PodGroup]] = defaultdict(list)
        for group in self._groups:
            self._by_namespace[group.namespace].append(group)
            for key, value in group.labels.items():
                self._by_label[group.namespace, key, value].append(group)
        # The node of each moved pod, by UID; empty for none.
        self._moved_to: dict[str, str] = {}
        self._domains: dict[_DomainsKey, TopologyDomains] = {}
        self._tallies_of_terms: dict[tuple[tuple[_Term, ...], str], Tally] = {}
        self._tallies_of_spreads: dict[_SpreadKey, Tally] = {}
        self._repelling_pods: dict[_Term, Tally] = {}
        for group in self._groups:
            self._repel_other_groups(group)

    def add_pod(self, pod: Pod, like: Pod) -> None:
        """`pod` is on no node yet, and has the rules of `like`."""
        group = self._group_of.get(like.uid)
        if group is not None:
            self._group_of[pod.uid] = group
            group.pods.append(pod)

    def move(self, pod: Pod, *, to: str) -> None:
        """`to` is empty for none."""
        group = self._group_of.get(pod.uid)
        if group is None:
            return
        previous_node = self._moved_to.get(pod.uid, pod.node)
        if to == pod.node:
            self._moved_to.pop(pod.uid, None)
        else:
            self._moved_to[pod.uid] = to
        for tally in group.counted_by:
            if previous_node:
                tally.remove(previous_node)
            if to:
                tally.add(to)

    def topology_checks(self, pod: Pod, cordoned: frozenset[str]) -> tuple[TopologyCheck, ...]:
        group = self._group_of.get(pod.uid)
        if group is None:
            return ()
        has_rules = group.placement.minds_others or bool(group.repelled_by)
        if not has_rules:
            return ()
        if group.demands is None:
            group.demands = self._make_demands(group)
        return tuple(_make_checks(group, group.demands, cordoned))

    def _repel_other_groups(self, group: _PodGroup) -> None:
        for pod_term in group.placement.repulsions:
            term = self._resolve(pod_term, group)
            tally = self._repelling_pods.get(term)
            if tally is None:
                tally = Tally(self._domains_of_all_nodes(term.topology))
                self._repelling_pods[term] = tally
                for repelled_group in self._groups_of_term(term):
                    repelled_group.repelled_by.append(tally)
            self._count_pods(tally, [group])

    def _make_demands(self, group: _PodGroup) -> _Demands:
        placement = group.placement
        attracting = tuple(self._resolve(term, group) for term in placement.attractions)
        repelling = tuple(self._resolve(term, group) for term in placement.repulsions)
        # kube-scheduler attracts to pods that match all terms, and repels from any.
        return _Demands(
            repulsions=tuple(self._tally((term,), term.topology) for term in repelling),
            attractions=tuple(self._tally(attracting, term.topology) for term in attracting),
            attracts_itself=all(group in self._groups_of_term(term) for term in attracting),
            spreads=tuple(self._spread_demand(spread, group) for spread in placement.spreads),
        )

    def _tally(self, terms: tuple[_Term, ...], topology: str) -> Tally:
        key = (terms, topology)
        if key not in self._tallies_of_terms:
            groups_by_term = [set(self._groups_of_term(term)) for term in terms]
            tally = Tally(self._domains_of_all_nodes(topology))
            self._count_pods(tally, set.intersection(*groups_by_term))
            self._tallies_of_terms[key] = tally
        return self._tallies_of_terms[key]

    def _spread_demand(self, spread: Spread, group: _PodGroup) -> _SpreadDemand:
        selector = spread.selector_for(group.labels)
        domains_key = (spread.topology, _node_filter(spread, group))
        key = _SpreadKey(domains_key, group.namespace, selector)
        if key not in self._tallies_of_spreads:
            tally = Tally(self._domains_of_spread(domains_key, spread, group))
            self._count_pods(tally, self._groups_matching(group.namespace, selector))
            self._tallies_of_spreads[key] = tally
        own_count = 1 if selector.matches(group.labels) else 0
        return _SpreadDemand(spread, self._tallies_of_spreads[key], own_count)

    def _count_pods(self, tally: Tally, groups: Iterable[_PodGroup]) -> None:
        """The tally then follows the groups' moves."""
        for group in groups:
            group.counted_by.append(tally)
            for pod in group.pods:
                node = self._moved_to.get(pod.uid, pod.node)
                if node:
                    tally.add(node)

    def _domains_of_all_nodes(self, topology: str) -> TopologyDomains:
        key = (topology, None)
        if key not in self._domains:
            self._domains[key] = TopologyDomains.of(topology, self._nodes)
        return self._domains[key]

    def _domains_of_spread(
        self, key: _DomainsKey, spread: Spread, group: _PodGroup
    ) -> TopologyDomains:
        topology, node_filter = key
        if node_filter is None:
            return self._domains_of_all_nodes(topology)
        if key not in self._domains:
            nodes = [node for node in self._nodes if _is_counted(node, spread, group)]
            self._domains[key] = TopologyDomains.of(topology, nodes)
        return self._domains[key]

    def _resolve(self, term: PodTerm, group: _PodGroup) -> _Term:
        return _Term(
            topology=term.topology,
            selector=term.selector_for(group.labels),
            namespaces=tuple(self._namespaces_of(term, group.namespace)),
        )

    def _groups_of_term(self, term: _Term) -> list[_PodGroup]:
        groups = list[_PodGroup]()
        for namespace in term.namespaces:
            groups += self._groups_matching(namespace, term.selector)
        return groups

    def _namespaces_of(self, term: PodTerm, own: str) -> Iterable[str]:
        if term.namespace_selector is None:
            return term.namespaces or (own,)
        names = set(term.namespaces)
        for name in self._by_namespace:
            if term.namespace_selector.matches(self._labels_of_namespace(name)):
                names.add(name)
        return sorted(names)

    def _labels_of_namespace(self, namespace: str) -> Mapping[str, str]:
        return {
            "kubernetes.io/metadata.name": namespace,
            **self._namespace_labels.get(namespace, {}),
        }

    def _groups_matching(self, namespace: str, selector: LabelSelector) -> Iterator[_PodGroup]:
        in_requirement = first_in_requirement(selector.requirements)
        candidates = list[_PodGroup]()
        if in_requirement is None:
            candidates += self._by_namespace.get(namespace, ())
        else:
            # The API server accepts a selector that repeats a value.
            for value in dict.fromkeys(in_requirement.values):
                candidates += self._by_label.get((namespace, in_requirement.key, value), ())
        return (group for group in candidates if selector.matches(group.labels))


def _make_checks(
    group: _PodGroup, demands: _Demands, cordoned: frozenset[str]
) -> Iterator[TopologyCheck]:
    for tally in demands.repulsions:
        yield TopologyCheck(tally, PlacementRule.OWN_ANTI_AFFINITY, most=0)
    for tally in group.repelled_by:
        yield TopologyCheck(tally, PlacementRule.OTHERS_ANTI_AFFINITY, most=0)
    # The first of pods that attract each other may run in any domain.
    has_attracting_pod = any(tally.total for tally in demands.attractions)
    is_first_of_group = demands.attracts_itself and not has_attracting_pod
    least = 0 if is_first_of_group else 1
    for tally in demands.attractions:
        yield TopologyCheck(tally, PlacementRule.POD_AFFINITY, least=least, needs_topology=True)
    for spread, tally, own_count in demands.spreads:
        # With this pod, a domain may exceed the emptiest by `max_skew`.
        most = _global_minimum(spread, tally, cordoned) + spread.max_skew - own_count
        yield TopologyCheck(tally, PlacementRule.TOPOLOGY_SPREAD, most=most, needs_topology=True)


def _global_minimum(spread: Spread, tally: Tally, cordoned: frozenset[str]) -> int:
    """Return the pods in the emptiest domain; 0 below `minDomains`."""
    if not spread.heeds_taints:
        has_too_few_domains = len(tally.domains.values) < spread.min_domains
        return 0 if has_too_few_domains else tally.smallest_count()
    # Cordons taint nodes, so domains without other nodes do not count.
    domains = tally.domains.with_nodes_besides(cordoned)
    if len(domains) < spread.min_domains:
        return 0
    return min((tally.counts.get(domain, 0) for domain in domains), default=0)


def _node_filter(spread: Spread, group: _PodGroup) -> _NodeFilter | None:
    """Return None if the spread counts all nodes.

    As a cache key, it needs all that `_is_counted` uses besides the node.
    """
    placement = group.placement
    affinity = None
    has_affinity = group.node_selector or placement.node_terms is not None
    if has_affinity and not spread.ignores_affinity:
        affinity = (tuple(group.node_selector.items()), placement.node_terms)
    tolerations = placement.tolerations if spread.heeds_taints else None
    topologies = tuple(dict.fromkeys(constraint.topology for constraint in placement.spreads))
    # Nodes without the key are in no domain anyway.
    is_only_topology = len(topologies) == 1
    if is_only_topology and affinity is None and tolerations is None:
        return None
    return _NodeFilter(topologies, affinity, tolerations)


def _is_counted(node: Node, spread: Spread, group: _PodGroup) -> bool:
    """Apply nodeAffinityPolicy and nodeTaintsPolicy."""
    placement = group.placement
    has_all_topologies = all(item.topology in node.labels for item in placement.spreads)
    if not has_all_topologies:
        return False
    if not spread.ignores_affinity and not group.matches(node):
        return False
    if not spread.heeds_taints:
        return True
    return placement.tolerates(node.taints)


# Namespace, labels, identity of the placement, and node selector.
_GroupKey = tuple[str, tuple[tuple[str, str], ...], int, tuple[tuple[str, str], ...]]


def _groups_of(pods: Sequence[Pod]) -> list[_PodGroup]:
    """Return none if no pod has a rule about other pods."""
    if not any(pod.placement.minds_others for pod in pods):
        return []
    groups: dict[_GroupKey, _PodGroup] = {}
    for pod in pods:
        labels = tuple(pod.labels.items())
        selector = tuple(pod.node_selector.items())
        # A snapshot's pods share placements, and identities are fast to compare.
        key = (pod.namespace, labels, id(pod.placement), selector)
        if key not in groups:
            groups[key] = _PodGroup(pod.namespace, pod.labels, pod.placement, pod.node_selector)
        groups[key].pods.append(pod)
    return list(groups.values())
