"""The examples of [[gates.healthy]], each tried on objects as their projects publish them."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rollout.adapters.cel import check_expression, evaluate
from rollout.errors import GateError
from rollout.model.object_reference import ObjectReference
from tests.docs.pages import DOCS

Json = dict[str, Any]
PAGE = DOCS / "windows-and-gates.md"
OBJECTS: list[Json] = yaml.safe_load(Path(__file__).with_name("healthy.yaml").read_text())


def documented_expressions() -> dict[str, str]:
    """Return the expressions of the page by resource."""
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    rules: dict[str, str] = {}
    for block in blocks:
        for table in tomllib.loads(block)["gates"].get("healthy", ()):
            if isinstance(table, dict):
                rules[table["resource"]] = table["expression"]
    return rules


EXPRESSIONS = documented_expressions()
HEALTHY = [(case["resource"], case["healthy"]) for case in OBJECTS]
UNHEALTHY = [
    (case["resource"], {**case["healthy"], "status": status})
    for case in OBJECTS
    for status in case["unhealthy"]
]
UNKNOWN = [
    (case["resource"], {**case["healthy"], "status": status})
    for case in OBJECTS
    for status in case["unknown"]
]


def value_of(resource: str, document: Json) -> bool:
    check_expression(EXPRESSIONS[resource])
    return evaluate(EXPRESSIONS[resource], json.dumps(document).encode())


def test_each_example_is_tried() -> None:
    assert EXPRESSIONS.keys() == {case["resource"] for case in OBJECTS}


@pytest.mark.parametrize("case", OBJECTS, ids=lambda case: case["resource"])
def test_the_resource_of_an_example_names_its_object(case: Json) -> None:
    reference = ObjectReference.parse(case["resource"])
    document = case["healthy"]
    assert reference.name == document["metadata"]["name"]
    assert reference.namespace == document["metadata"]["namespace"]
    assert document["apiVersion"].startswith(f"{reference.group}/")


@pytest.mark.parametrize(("resource", "document"), HEALTHY)
def test_a_healthy_object_passes_its_example(resource: str, document: Json) -> None:
    assert value_of(resource, document)


@pytest.mark.parametrize(("resource", "document"), UNHEALTHY)
def test_an_unhealthy_object_does_not_pass_its_example(resource: str, document: Json) -> None:
    assert not value_of(resource, document)


@pytest.mark.parametrize(("resource", "document"), UNKNOWN)
def test_an_object_that_reports_no_health_has_no_value(resource: str, document: Json) -> None:
    with pytest.raises(GateError, match="Key not found in map"):
        value_of(resource, document)
