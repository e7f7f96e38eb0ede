"""CEL expressions by the real library: what is refused, and what has no value."""

import json
import sys
import time

import pytest

from rollout.adapters.cel import check_expression, evaluate
from rollout.errors import GateError, UsageError

CLUSTER = {
    "metadata": {"name": "main", "annotations": {"example.com/paused": "no"}},
    "status": {
        "health": "green",
        "nodes": 3,
        "reason": None,
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "Backup"}],
    },
    "value": "12",
}
BODY = json.dumps(CLUSTER).encode()


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("status.health == 'green'", True),
        ("status.nodes > 3", False),
        ("status.reason == null", True),
        ("has(status.phase)", False),
        ("has(spec.replicas)", False),
        ("status.phase == 'Ready' || status.nodes == 3", True),
        ("status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')", True),
        ("status.conditions.all(c, has(c.status))", False),
        ("metadata.annotations['example.com/paused'] == 'no'", True),
        ("int(object.value) == 12", True),
    ],
)
def test_an_expression_has_the_value_that_kubernetes_gives_it(
    expression: str, *, value: bool
) -> None:
    check_expression(expression)
    assert evaluate(expression, BODY) is value


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("status.phase == 'Ready'", 'Key not found in map : "phase"'),
        ("spec.replicas == 3", 'Key not found in map : "replicas"'),
        ("status.conditions.all(c, c.status == 'True')", 'Key not found in map : "status"'),
        ("status.conditions[2].type == 'Ready'", "Index error: index=2 size=2"),
        ("status.health", "is of type string, not bool"),
        ("status", "is of type map<dyn, dyn>, not bool"),
        ("status.health > 3", "No matching overloads found"),
    ],
)
def test_an_expression_without_a_boolean_value_says_why(expression: str, why: str) -> None:
    check_expression(expression)
    with pytest.raises(GateError) as raised:
        evaluate(expression, BODY)
    assert raised.value.message.startswith(expression)
    assert why in raised.value.message


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("status.health = 'green'", "is not a CEL expression: 1:15: Syntax error"),
        ("stauts.health == 'green'", "undeclared reference to 'stauts"),
        ("healthy(status)", "undeclared reference to 'healthy'"),
        ("1 + 'x' == 2", "found no matching overload"),
        ("'green'", "is of type string, not bool"),
        ("size(status.conditions)", "is of type int, not bool"),
        ("true\n", "one line of printable text"),
        ("true" + " " * 2000, "longer than 2000 characters"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit exceeded"),
    ],
)
def test_an_invalid_expression_is_refused(expression: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_expression(expression)
    assert why in raised.value.message


def test_the_iterations_of_an_expression_are_limited() -> None:
    body = json.dumps({"status": {"l": list(range(20_000))}}).encode()
    with pytest.raises(GateError, match="Iteration budget exceeded"):
        evaluate("status.l.all(x, x >= 0)", body)


def test_the_memory_of_an_expression_is_limited() -> None:
    body = json.dumps({"status": {"l": list(range(9_999)), "s": "a" * 1_000_000}}).encode()
    with pytest.raises(GateError, match="needs more than 1024 MiB of memory"):
        evaluate("status.l.map(x, status.s + status.s).size() > 0", body)


def test_the_time_of_an_expression_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 9,000 iterations compares the whole object, which takes a minute."""
    monkeypatch.setattr("rollout.adapters.cel._EVALUATION_SECONDS", 1.5)
    body = json.dumps({"status": {"l": [{"text": "x" * 40} for _ in range(9_000)]}}).encode()
    began = time.monotonic()
    with pytest.raises(GateError, match=r"takes longer than 1\.5s"):
        evaluate("status.l.all(x, object == object)", body)
    assert time.monotonic() - began < 20


def test_without_the_library_the_way_to_install_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python.cel", None)
    with pytest.raises(UsageError) as raised:
        check_expression("true")
    assert raised.value.hint == f"{sys.executable} -m pip install 'cel-expr-python>=0.1.3'"
