"""Which metrics and labels a PromQL expression asks for, and which labels its answer has; by a real parser."""

from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser

from rollout.report.metrics.families import FAMILIES, Kind

# of each series, whatever it is scraped from
_ALWAYS = frozenset({"cluster", "job", "instance"})
_SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count")}
SERIES: Mapping[str, frozenset[str]] = {
    family.name + suffix: _ALWAYS | set(family.labels) | ({"le"} if suffix == "_bucket" else set())
    for family in FAMILIES
    for suffix in _SUFFIXES.get(family.kind, ("",))
}
"""Every series' labels by its name."""


def answered(text: str) -> frozenset[str]:
    """The labels of what an expression answers; a metric or label that does not exist is an `AssertionError`."""
    return _labels(promql_parser.parse(text))


def _labels(part: Any) -> frozenset[str]:
    match type(part).__name__:
        case "VectorSelector" | "MatrixSelector":
            return _of_selector(getattr(part, "vector_selector", part))
        case "AggregateExpr":
            return _of_aggregate(part)
        case "Call":
            inner = frozenset[str]().union(*map(_labels, part.args))
            return inner - {"le"} if part.func.name == "histogram_quantile" else inner
        case "BinaryExpr":
            return _labels(part.lhs) or _labels(part.rhs)
        case "ParenExpr" | "SubqueryExpr" | "UnaryExpr":
            return _labels(part.expr)
        case other:
            assert other in ("NumberLiteral", "StringLiteral"), f"{other} is not known here"
            return frozenset()


def _of_selector(selector: Any) -> frozenset[str]:
    assert selector.name in SERIES, f"there is no metric {selector.name}"
    labels = SERIES[selector.name]
    asked = {matcher.name for matcher in selector.matchers.matchers}
    assert asked <= labels, f"{selector.name} has no label {asked - labels}"
    return labels


def _of_aggregate(aggregate: Any) -> frozenset[str]:
    inner = _labels(aggregate.expr)
    if aggregate.modifier is None:
        return frozenset()
    assert aggregate.modifier.type == promql_parser.AggModifierType.By, "without() is not known here"
    kept = frozenset(aggregate.modifier.labels)
    assert kept <= inner, f"{aggregate} goes by labels that are not there: {kept - inner}"
    return kept


def selected(text: str) -> Iterator[str]:
    """The names of the series that an expression reads."""
    yield from _selected(promql_parser.parse(text))


def _selected(part: Any) -> Iterator[str]:
    if hasattr(part, "matchers"):
        yield part.name
    inner = (getattr(part, name, None) for name in ("vector_selector", "expr", "lhs", "rhs"))
    for further in (*inner, *getattr(part, "args", ())):
        if further is not None:
            yield from _selected(further)
