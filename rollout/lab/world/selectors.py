"""Label selectors and node affinity, as the fields of objects write them (matchLabels, matchExpressions)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rollout.lab.api.content import label_number
from rollout.lab.api.store import Json


def matches(selector: Json | None, labels: Mapping[str, str]) -> bool:
    """Whether a LabelSelector picks these labels: an empty one picks all, an absent one none."""
    if selector is None:
        return False
    wanted: Json = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        holds(each, labels) for each in selector.get("matchExpressions") or ()
    )


def holds(expression: Json, labels: Mapping[str, str]) -> bool:
    """Whether one requirement (key, operator, values) holds; an unknown operator never does."""
    decide = _OPERATORS.get(expression["operator"])
    return decide is not None and decide(labels.get(expression["key"]), expression.get("values") or ())


def _compared(value: str | None, values: Sequence[str]) -> int:
    """The order of two whole numbers; 0 where either is none."""
    left, right = label_number(value), label_number(next(iter(values), None))
    return 0 if left is None or right is None else (left > right) - (left < right)


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value is not None and value in values,
    "NotIn": lambda value, values: value is None or value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values) > 0,
    "Lt": lambda value, values: _compared(value, values) < 0,
}


def node_affinity_holds(pod: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether nodeSelector and required node affinity let the pod run on a node."""
    spec = pod["spec"]
    selector: Json = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    terms = required_node_terms(spec)
    return terms is None or any_term_holds(terms, node_name, labels)


def any_term_holds(terms: Sequence[Json], node_name: str, labels: Mapping[str, str]) -> bool:
    """Whether one of the alternatives of a node selector holds for a node."""
    return any(_term_holds(term, node_name, labels) for term in terms)


def required_node_terms(spec: Json) -> list[Json] | None:
    """The alternatives of required node affinity; None where there is none."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def _term_holds(term: Json, node_name: str, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    name = {"metadata.name": node_name}
    return all(holds(each, labels) for each in expressions) and all(holds(each, name) for each in fields)
