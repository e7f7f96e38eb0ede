import difflib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli.stages.cluster import with_patience
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
    matching = with_patience(snapshot.read_nodes, api, selector) if selector else nodes
    selected = selected_names(nodes, matching, selection)
    for pattern in selection.exclude:
        only_this = replace(selection, exclude=(pattern,))
        if not any(is_excluded_by_name(node.name, only_this) for node in nodes):
            say(f"warning: --exclude matches no node in the cluster: {pattern}")
    names = tuple(name for name in selected if not is_excluded_by_name(name, selection))
    if not names:
        say(f"warning: --exclude leaves none of the selected nodes: {shortened(selected)}")
    return SelectedNodes(selected, names)


def selected_names(
    nodes: Sequence[Node], matching: Sequence[Node], selection: Selection
) -> tuple[str, ...]:
    """Return the names before `--exclude`. The selector matches the nodes in `matching`."""
    present = {node.name for node in nodes}
    # A pattern may exclude nodes that do not exist yet.
    excluded = [name for name in selection.exclude if not _is_pattern(name)]
    missing = [name for name in (*selection.nodes, *excluded) if name not in present]
    if missing:
        hint = similar_names_hint(missing[0], nodes)
        raise InputError(f"there is no node {shortened(missing)}", hint=hint)
    if not nodes:
        hint = "Is this the right context? See --kubeconfig and --context."
        raise InputError("the cluster has no nodes", hint=hint)
    if not matching:
        hint = similar_labels_hint(selection.selector, nodes)
        raise InputError(f"no node matches the selector {selection.selector!r}", hint=hint)
    requested = set(selection.nodes)
    names = tuple(node.name for node in matching if not requested or node.name in requested)
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
    """Whether `name` is the node's name with or without its domain, or an address of the node."""
    if name.lower().partition(".")[0] == node.name.partition(".")[0]:
        return True
    return normalize_address(name) in {
        normalize_address(address.address) for address in node.addresses
    }


def similar_labels_hint(selector: str, nodes: Sequence[Node]) -> str:
    """Return the values of the selector's first label, or else similar labels."""
    key = next((requirement.key for requirement in parse_selector(selector).requirements), "")
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"The nodes have these values of {key}: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    labels = ", ".join(close) if close else shortened(keys)
    return f"No node has the label {key}. The nodes have these labels: {labels}"
