import difflib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli.stages.cluster import with_retries
from rollout.cli.terminal import say
from rollout.errors import InputError
from rollout.gather.cluster import snapshot
from rollout.model.cluster import Node
from rollout.model.host import normalize_address
from rollout.model.policy import Selection
from rollout.model.selectors import parse_selector
from rollout.model.text import shortened
from rollout.planning.eligibility.candidates import is_excluded_by_name
from rollout.ports import ClusterApi

_SUGGESTIONS = 3
_PATTERN_CHARACTERS = frozenset("*?[]")


class SelectedNodes(Struct, frozen=True):
    # Also the nodes that `--exclude` leaves out.
    before_exclude: tuple[str, ...]
    names: tuple[str, ...]


def select(nodes: Sequence[Node], api: ClusterApi, selection: Selection) -> SelectedNodes:
    """Raises `InputError` if no node is selected or a named node does not exist."""
    selector = selection.selector
    matching = with_retries(snapshot.read_nodes, api, selector) if selector else nodes
    selected = selected_names(nodes, matching, selection)
    for pattern in selection.exclude:
        with_this_pattern = replace(selection, exclude=(pattern,))
        is_used = any(is_excluded_by_name(node.name, with_this_pattern) for node in nodes)
        if not is_used:
            say(f"warning: --exclude matches no node in the cluster: {pattern}")
    names = tuple(name for name in selected if not is_excluded_by_name(name, selection))
    if not names:
        say(f"warning: --exclude leaves none of the selected nodes: {shortened(selected)}")
    return SelectedNodes(selected, names)


def selected_names(
    nodes: Sequence[Node], matching: Sequence[Node], selection: Selection
) -> tuple[str, ...]:
    present = {node.name for node in nodes}
    # A pattern may be meant for future nodes.
    excluded_names = [name for name in selection.exclude if not _is_pattern(name)]
    missing = [name for name in (*selection.nodes, *excluded_names) if name not in present]
    if missing:
        hint = similar_names_hint(missing[0], nodes)
        raise InputError(f"there is no node {shortened(missing)}", hint=hint)
    if not nodes:
        hint = "Is this the right context? See --kubeconfig and --context."
        raise InputError("the cluster has no nodes", hint=hint)
    if not matching:
        hint = similar_labels_hint(selection.selector, nodes)
        raise InputError(f"no node matches the selector {selection.selector!r}", hint=hint)
    names = tuple(node.name for node in matching)
    if selection.nodes:
        names = tuple(name for name in names if name in selection.nodes)
    if not names:
        raise InputError(
            f"none of the nodes named by --node has the labels {selection.selector!r}",
            hint="Drop --node or --selector.",
        )
    return names


def _is_pattern(name: str) -> bool:
    return bool(_PATTERN_CHARACTERS.intersection(name))


def similar_names_hint(name: str, nodes: Sequence[Node]) -> str:
    if _is_pattern(name):
        return (
            "Only --exclude accepts patterns. Write whole names, or select labels with --selector."
        )
    present = [node.name for node in nodes]
    similar = [node.name for node in nodes if _is_same_host(name, node)][:_SUGGESTIONS]
    if not similar:
        similar = difflib.get_close_matches(name, present, n=_SUGGESTIONS)
    return f"Similar: {', '.join(similar)}" if similar else f"The cluster has {shortened(present)}"


def _is_same_host(name: str, node: Node) -> bool:
    """`name` may lack the node's domain, or be an address."""
    name_without_domain, _, _ = name.lower().partition(".")
    node_without_domain, _, _ = node.name.partition(".")
    if name_without_domain == node_without_domain:
        return True
    addresses = {normalize_address(address.address) for address in node.addresses}
    return normalize_address(name) in addresses


def similar_labels_hint(selector: str, nodes: Sequence[Node]) -> str:
    """Return the values of the selector's first label, or similar labels."""
    requirements = parse_selector(selector).requirements
    key = requirements[0].key if requirements else ""
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"The nodes have these values of {key}: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    labels = ", ".join(close) if close else shortened(keys)
    return f"No node has the label {key}. The nodes have these labels: {labels}"
