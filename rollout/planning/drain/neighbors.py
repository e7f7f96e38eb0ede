"""Inter-pod affinity, anti-affinity and topology spread, with counts kept as pods move.

Each required rule checks how many matching pods run in a node's topology domain.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rollout.model.cluster import LabelSelector, Node, Pod
from rollout.model.drain_finding import PlacementRule
from rollout.model.placement import Placement, PodTerm, Spread
from rollout.model.selectors import first_with_values, has_labels


@dataclass(frozen=True, slots=True)
class TopologyDomains:
    """The domains of a topology key; `by_node` has those of the nodes that count."""

    topology: str
    by_node: Mapping[str, str]
    values: frozenset[str]

    @classmethod
    def of(cls, topology: str, nodes: Iterable[Node]) -> "TopologyDomains":
        by_node = {node.name: node.labels[topology] for node in nodes if topology in node.labels}
        return cls(topology, by_node, frozenset(by_node.values()))

    def among(self, closed: frozenset[str]) -> frozenset[str]:
        if not closed:
            return self.values
        return frozenset(value for node, value in self.by_node.items() if node not in closed)


@dataclass(slots=True)
class Tally:
    domains: TopologyDomains
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
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
        self.counts[domain] = before + change
        self._domains_by_count[before] -= 1
        self._domains_by_count[before + change] += 1
        if not self._domains_by_count[before]:
            del self._domains_by_count[before]

    def least(self) -> int:
        return 0 if self._has_empty_domain() else min(self._nonzero_counts(), default=0)

    def has_at_most(self, most: int) -> bool:
        if most < 0:
            return False
        return self._has_empty_domain() or any(count <= most for count in self._nonzero_counts())

    def _nonzero_counts(self) -> Iterator[int]:
        return (count for count, number in self._domains_by_count.items() if count and number > 0)

    def _has_empty_domain(self) -> bool:
        nonempty = sum(self._domains_by_count[count] for count in self._nonzero_counts())
        return len(self.domains.values) > nonempty


_ANY_NUMBER = 1 << 30
_TermKey = tuple[str, LabelSelector, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class TopologyCheck:
    """Requires `least` to `most` of the tally's pods in the node's domain.

    `needs_topology`: a node without the key fails.
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
        return self.needs_topology and not self.tally.has_at_most(self.most)


@dataclass(slots=True, eq=False)
class _PodGroup:
    """Pods with the same namespace, labels, placement and node selector.

    `tallies` count them; `repelled_by` count pods whose anti-affinity matches them.
    """

    namespace: str
    labels: Mapping[str, str]
    placement: Placement
    node_selector: Mapping[str, str]
    pods: list[Pod] = field(default_factory=list)
    tallies: list[Tally] = field(default_factory=list)
    repelled_by: list[Tally] = field(default_factory=list)
    demands: "_Demands | None" = None

    def matches(self, node: Node) -> bool:
        if not has_labels(node.labels, self.node_selector.items()):
            return False
        return self.placement.admits(node.name, node.labels)


@dataclass(frozen=True, slots=True)
class _Demands:
    """The tallies of a group's own terms.

    `joins_itself`: its pods match their own affinity. The number in `spreads` is 1 if the group
    itself counts.
    """

    repulsions: tuple[Tally, ...]
    attractions: tuple[Tally, ...]
    joins_itself: bool
    spreads: tuple[tuple[Spread, Tally, int], ...]


class Neighbors:
    """Counts pods for affinity and spread; does nothing if no pod has such a rule."""

    def __init__(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[Node],
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._nodes = nodes
        self._namespaces = namespaces or {}
        self._groups = _groups_of(pods)
        self.has_rules = bool(self._groups)
        self._group_of = {pod.uid: group for group in self._groups for pod in group.pods}
        self._by_label: dict[tuple[str, str, str], list[_PodGroup]] = defaultdict(list)
        self._by_namespace: dict[str, list[_PodGroup]] = defaultdict(list)
        for group in self._groups:
            self._by_namespace[group.namespace].append(group)
            for key, value in group.labels.items():
                self._by_label[group.namespace, key, value].append(group)
        self._node_of: dict[str, str] = {}
        self._domains: dict[tuple[object, ...], TopologyDomains] = {}
        self._tallies: dict[tuple[object, ...], Tally] = {}
        self._repelling_pods: dict[tuple[object, ...], Tally] = {}
        for group in self._groups:
            self._count_repulsions(group)

    def move(self, pod: Pod, *, to: str) -> None:
        group = self._group_of.get(pod.uid)
        if group is None:
            return
        before = self._node_of.get(pod.uid, pod.node)
        self._node_of[pod.uid] = to
        for tally in group.tallies:
            if before:
                tally.remove(before)
            if to:
                tally.add(to)

    def checks(self, pod: Pod, closed: frozenset[str]) -> tuple[TopologyCheck, ...]:
        group = self._group_of.get(pod.uid)
        if group is None or not (group.placement.minds_others or group.repelled_by):
            return ()
        if group.demands is None:
            group.demands = self._demands(group)
        return tuple(_checks(group, group.demands, closed))

    def _count_repulsions(self, group: _PodGroup) -> None:
        for term in group.placement.repulsions:
            term_key = self._term_key(term, group)
            if term_key not in self._repelling_pods:
                repelling_pods = Tally(self._domains_of_all_nodes(term.topology))
                self._repelling_pods[term_key] = repelling_pods
                for target in self._groups_of_term(term_key):
                    target.repelled_by.append(repelling_pods)
            self._fill(self._repelling_pods[term_key], [group])

    def _demands(self, group: _PodGroup) -> _Demands:
        placement = group.placement
        affinity = [self._term_key(term, group) for term in placement.attractions]
        anti_affinity = [self._term_key(term, group) for term in placement.repulsions]
        attractions = list[Tally]()
        for term_key in affinity:
            other_terms = [other for other in affinity if other != term_key]
            attractions.append(self._tally_of_terms(term_key, *other_terms))
        return _Demands(
            repulsions=tuple(self._tally_of_terms(term_key) for term_key in anti_affinity),
            attractions=tuple(attractions),
            joins_itself=all(group in self._groups_of_term(term_key) for term_key in affinity),
            spreads=tuple(self._tally_of_spread(spread, group) for spread in placement.spreads),
        )

    def _tally_of_terms(self, *terms: _TermKey) -> Tally:
        """Count the pods that match all terms, by the first term's topology.

        kube-scheduler requires all terms.
        """

        def matching() -> set[_PodGroup]:
            return set.intersection(*(set(self._groups_of_term(term)) for term in terms))

        topology, _selector, _namespaces = terms[0]
        return self._tally_for(terms, self._domains_of_all_nodes(topology), matching)

    def _tally_for(
        self,
        key: tuple[object, ...],
        domains: TopologyDomains,
        select: Callable[[], Iterable[_PodGroup]],
    ) -> Tally:
        if key not in self._tallies:
            tally = self._tallies[key] = Tally(domains)
            self._fill(tally, select())
        return self._tallies[key]

    def _tally_of_spread(self, spread: Spread, group: _PodGroup) -> tuple[Spread, Tally, int]:
        selector = spread.selector_for(group.labels)
        domains = self._domains_of_spread(spread, group)
        key = (id(domains), group.namespace, selector)
        tally = self._tally_for(
            key, domains, lambda: self._groups_matching(group.namespace, selector)
        )
        return spread, tally, int(selector.matches(group.labels))

    def _fill(self, tally: Tally, groups: Iterable[_PodGroup]) -> None:
        for group in groups:
            group.tallies.append(tally)
            for pod in group.pods:
                node = self._node_of.get(pod.uid, pod.node)
                if node:
                    tally.add(node)

    def _domains_of_all_nodes(self, topology: str) -> TopologyDomains:
        if (topology,) not in self._domains:
            self._domains[topology,] = TopologyDomains.of(topology, self._nodes)
        return self._domains[topology,]

    def _domains_of_spread(self, spread: Spread, group: _PodGroup) -> TopologyDomains:
        rules = _counting_rules(spread, group)
        if rules is None:
            return self._domains_of_all_nodes(spread.topology)
        key = (spread.topology, *rules)
        if key not in self._domains:
            nodes = [node for node in self._nodes if _is_counted(node, spread, group)]
            self._domains[key] = TopologyDomains.of(spread.topology, nodes)
        return self._domains[key]

    def _term_key(self, term: PodTerm, group: _PodGroup) -> _TermKey:
        return (
            term.topology,
            term.selector_for(group.labels),
            tuple(self._namespaces_of(term, group.namespace)),
        )

    def _groups_of_term(self, term_key: _TermKey) -> list[_PodGroup]:
        _topology, selector, namespaces = term_key
        return [group for name in namespaces for group in self._groups_matching(name, selector)]

    def _namespaces_of(self, term: PodTerm, own: str) -> Iterable[str]:
        """Return the namespaces that the term is about.

        A namespace selector is applied only to namespaces that have pods here.
        """
        if term.namespace_selector is None:
            return term.namespaces or (own,)
        names = set(term.namespaces)
        for name in self._by_namespace:
            if term.namespace_selector.matches(self._labels_of(name)):
                names.add(name)
        return sorted(names)

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return {"kubernetes.io/metadata.name": namespace, **self._namespaces.get(namespace, {})}

    def _groups_matching(self, namespace: str, selector: LabelSelector) -> Iterator[_PodGroup]:
        requirement = first_with_values(selector.requirements)
        candidates = list[_PodGroup]()
        if requirement is None:
            candidates += self._by_namespace.get(namespace, ())
        else:
            for value in requirement.values:
                candidates += self._by_label.get((namespace, requirement.key, value), ())
        return (group for group in candidates if selector.matches(group.labels))


def _checks(group: _PodGroup, demands: _Demands, closed: frozenset[str]) -> Iterator[TopologyCheck]:
    for tally in demands.repulsions:
        yield TopologyCheck(tally, PlacementRule.OWN_ANTI_AFFINITY, most=0)
    for tally in group.repelled_by:
        yield TopologyCheck(tally, PlacementRule.OTHERS_ANTI_AFFINITY, most=0)
    # The first of pods that run beside each other may run anywhere.
    is_first = demands.joins_itself and not any(tally.total for tally in demands.attractions)
    least = 0 if is_first else 1
    for tally in demands.attractions:
        yield TopologyCheck(tally, PlacementRule.POD_AFFINITY, least=least, needs_topology=True)
    for spread, tally, counts_itself in demands.spreads:
        most = _global_minimum(spread, tally, closed) + spread.max_skew - counts_itself
        yield TopologyCheck(tally, PlacementRule.TOPOLOGY_SPREAD, most=most, needs_topology=True)


def _global_minimum(spread: Spread, tally: Tally, closed: frozenset[str]) -> int:
    domains = tally.domains.among(closed) if spread.heeds_taints else tally.domains.values
    if len(domains) < spread.min_domains:
        return 0
    if not spread.heeds_taints:
        return tally.least()
    return min((tally.counts.get(value, 0) for value in domains), default=0)


def _counting_rules(spread: Spread, group: _PodGroup) -> tuple[object, ...] | None:
    """Return what `_is_counted` depends on besides the node; None if it is always true."""
    placement = group.placement
    topologies = tuple(dict.fromkeys(constraint.topology for constraint in placement.spreads))
    affinity: object = None
    selects_nodes = group.node_selector or placement.node_terms is not None
    if selects_nodes and not spread.ignores_affinity:
        affinity = (tuple(group.node_selector.items()), placement.node_terms)
    tolerations = placement.tolerations if spread.heeds_taints else None
    if len(topologies) == 1 and affinity is None and tolerations is None:
        return None
    return (topologies, affinity, tolerations)


def _is_counted(node: Node, spread: Spread, group: _PodGroup) -> bool:
    placement = group.placement
    if not all(constraint.topology in node.labels for constraint in placement.spreads):
        return False
    if not spread.ignores_affinity and not group.matches(node):
        return False
    return not spread.heeds_taints or placement.tolerates(node.taints)


def _groups_of(pods: Sequence[Pod]) -> list[_PodGroup]:
    if not any(pod.placement.minds_others for pod in pods):
        return []
    groups: dict[tuple[object, ...], _PodGroup] = {}
    for pod in pods:
        selector = tuple(pod.node_selector.items())
        key = (pod.namespace, tuple(pod.labels.items()), id(pod.placement), selector)
        if key not in groups:
            groups[key] = _PodGroup(pod.namespace, pod.labels, pod.placement, pod.node_selector)
        groups[key].pods.append(pod)
    return list(groups.values())
