"""Node affinity, as the fields of objects write it."""

from collections.abc import Mapping, Sequence

from rollout.lab.api.selectors import holds
from rollout.lab.api.store import Json


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
    return all(holds(expression, labels) for expression in expressions) and all(holds(field, name) for field in fields)
