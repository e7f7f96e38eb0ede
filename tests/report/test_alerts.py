"""Alert rules and dashboard: every expression is PromQL, of metrics and labels that there are; and
alerts fire.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from rollout.model.progress import Outcome
from rollout.report.metric_families import Families

PROMTOOL = shutil.which("promtool")


FIRING = [Path(__file__).with_name(name) for name in ("alerts.yaml", "alerts_of_days.yaml")]


# Grafana puts them in.
VARIABLES = {"$cluster": ".*", "$__rate_interval": "5m"}


MONITORING = Path(__file__).parents[2] / "docs" / "monitoring"


def text(name: str) -> str:
    return (MONITORING / name).read_text(encoding="utf-8")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(text("rules.yaml"))["groups"]
    return list(group["rules"])


def expressions(content: Any) -> Iterator[tuple[str, str]]:
    """Every expression of a dashboard, with the legend that shows its labels."""
    match content:
        case {"expr": str(expression), **others}:
            for variable, text in VARIABLES.items():
                expression = expression.replace(variable, text)
            yield expression, str(others.get("legendFormat", ""))
        case dict():
            for value in content.values():
                yield from expressions(value)
        case list():
            for value in content:
                yield from expressions(value)
        case _:
            return


def test_each_alert_asks_for_what_there_is_and_shows_labels_that_it_has() -> None:
    alerts = rules()
    assert len(alerts) == 10
    for alert in alerts:
        labels = answered(alert["expr"])
        texts = " ".join(alert["annotations"].values())
        shown = set(re.findall(r"\$labels\.(\w+)", texts))
        assert shown <= labels, alert["alert"]
        assert "cluster" in labels


def test_each_picture_asks_for_what_there_is() -> None:
    dashboard = json.loads(text("dashboard.json"))
    pictures = list(expressions(dashboard["panels"]))
    assert len(pictures) >= len(dashboard["panels"]) > 10
    for expression, legend in [*pictures, *expressions(dashboard["annotations"])]:
        labels = answered(expression)
        assert set(re.findall(r"{{(\w+)}}", legend)) <= labels, expression
    (clusters,) = [
        item["query"]["query"]
        for item in dashboard["templating"]["list"]
        if item["name"] == "cluster"
    ]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", clusters).groups()  # type: ignore[union-attr]
    assert label in answered(metric)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_what_counts_as_a_failure_is_what_alerts_count() -> None:
    (failed,) = [alert["expr"] for alert in rules() if alert["alert"] == "NodeRolloutNodesFailed"]
    (excepted,) = re.findall(r'outcome!~"([^"]+)"', failed)
    assert set(excepted.split("|")) == {outcome for outcome in Outcome if not outcome.is_failure}


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, of Debian's package prometheus")
def test_promtool_takes_the_rules_and_sees_each_alert_fire(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(text("rules.yaml"))
    for file in FIRING:
        shutil.copy(file, tmp_path)
    for words in (("check", "rules", "rules.yaml"), ("test", "rules", *(f.name for f in FIRING))):
        ended = subprocess.run(
            [str(PROMTOOL), *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
    fired = {
        alert["alertname"]
        for file in FIRING
        for test in yaml.safe_load(file.read_text())["tests"]
        for alert in alerting(test)
    }
    assert fired == {alert["alert"] for alert in rules()}


def alerting(test: dict[str, Any]) -> list[dict[str, Any]]:
    return [alert for alert in test["alert_rule_test"] if alert.get("exp_alerts")]


# Which metrics and labels a PromQL expression asks for, and which labels its answer has; by a real
# parser.


# of each series, whatever it is scraped from
_ALWAYS = frozenset({"cluster", "job", "instance"})


_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("_total",)}


# Every series' labels by its name.
SERIES: Mapping[str, frozenset[str]] = {
    metric.name + suffix: _ALWAYS | set(family.labels) | ({"le"} if suffix == "_bucket" else set())
    for family in Families("").all
    for metric in family.instrument.describe()
    for suffix in _SUFFIXES.get(metric.type, ("",))
}


def answered(text: str) -> frozenset[str]:
    """The labels of what an expression answers; a metric or label that does not exist is an
    `AssertionError`.
    """
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
    assert aggregate.modifier.type == promql_parser.AggModifierType.By, (
        "without() is not known here"
    )
    kept = frozenset(aggregate.modifier.labels)
    assert kept <= inner, f"{aggregate} goes by labels that are not there: {kept - inner}"
    return kept
