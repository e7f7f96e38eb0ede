"""Which nodes the operator means: names that exist, and something at all."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rollout.errors import InputError
from rollout.model.cluster import Node
from rollout.model.policy import Selection
from rollout.model.text import shortened
from rollout.planning.eligibility import excluded_by_name
from rollout.planning.selector import parse_selector

_SUGGESTIONS = 3


def chosen(nodes: Sequence[Node], matching: Sequence[Node], selection: Selection) -> tuple[str, ...]:
    """Names that the selector (`matching`) and `--node` choose of all `nodes`, in their order, before `--exclude`."""
    _refuse_missing(nodes, selection.nodes)
    if not matching:
        raise _nothing_matches(nodes, selection.selector)
    requested = set(selection.nodes)
    names = tuple(node.name for node in matching if not requested or node.name in requested)
    if not names:
        raise InputError(
            f"none of the nodes named by --node has the labels {selection.selector!r}",
            hint="Drop --node or --selector.",
        )
    return names


def useless_exclusions(nodes: Sequence[Node], selection: Selection) -> str:
    """What to warn of where an `--exclude` names no node, as after a slip of the pen; empty where each names one."""
    useless = [
        pattern
        for pattern in selection.exclude
        if not any(excluded_by_name(node.name, replace(selection, exclude=(pattern,))) for node in nodes)
    ]
    return f"--exclude names no node of the cluster: {shortened(useless)}" if useless else ""


def useless_spreading(nodes: Sequence[Node], label: str) -> str:
    """What to warn of where no node has the label of `--spread-by`, so that it keeps nothing apart; else empty."""
    if not label or any(label in node.labels for node in nodes):
        return ""
    return f"--spread-by has no effect: {_close_labels(label, nodes)}"


def useless_control_plane(nodes: Sequence[Node], selector: str) -> Iterator[str]:
    """A warning where `--control-plane-selector` chooses no node; none where it chooses one, or is not given."""
    if selector and not any(parse_selector(selector).matches(node.labels) for node in nodes):
        yield f"--control-plane-selector has no effect: {_close_labels(_first_label(selector), nodes)}"


def _refuse_missing(nodes: Sequence[Node], requested: Iterable[str]) -> None:
    present = [node.name for node in nodes]
    missing = [name for name in requested if name not in present]
    if missing:
        raise InputError(f"there is no node {shortened(missing)}", hint=_close_names(missing[0], present))


def _close_names(name: str, present: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, present, n=_SUGGESTIONS)
    return f"Similar: {', '.join(close)}" if close else f"The cluster has {shortened(present)}"


def _nothing_matches(nodes: Sequence[Node], selector: str) -> InputError:
    if not nodes:
        return InputError("the cluster has no nodes", hint="Is this the right context? See --kubeconfig and --context.")
    return InputError(f"no node matches the selector {selector!r}", hint=_close_labels(_first_label(selector), nodes))


def _first_label(selector: str) -> str:
    return next((requirement.key for requirement in parse_selector(selector).requirements), "")


def _close_labels(key: str, nodes: Sequence[Node]) -> str:
    values = {node.labels[key] for node in nodes if key in node.labels}
    if values:
        return f"On the nodes, {key} is one of: {shortened(sorted(values))}"
    keys = sorted({label for node in nodes for label in node.labels})
    close = difflib.get_close_matches(key, keys, n=_SUGGESTIONS, cutoff=0.4)
    return f"No node has the label {key}; labels are: {', '.join(close) if close else shortened(keys)}"
