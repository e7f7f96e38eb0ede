"""Names in the code name the thing; the example pipelines are valid, and keep their secrets."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT

# Say nothing about the value that they are bound to.
VAGUE = frozenset({"each", "found", "made", "some", "stuff", "that", "these", "thing", "this", "those", "told"})


SOURCES = sorted((ROOT / "rollout").rglob("*.py"))


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def bound(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that is bound, with its line: variables, parameters, functions, classes, patterns."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.MatchAs(name=str(name)):
                yield node.lineno, name
            case _:
                continue


def test_no_name_is_vague() -> None:
    assert not [f"{file}:{line} {name}" for file in SOURCES for line, name in bound(parsed(file)) if name in VAGUE]


# The pipelines of docs/examples are valid, and keep their secrets as the page says.


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


CHECK = Path(sys.executable).parent / "check-jsonschema"


WRITE = "Write the secrets to files"


def document(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


@pytest.mark.parametrize(("name", "schema"), [("github-nodes.yml", "github-workflows"), ("gitlab-ci.yml", "gitlab-ci")])
def test_it_is_valid(name: str, schema: str) -> None:
    command = [str(CHECK), "--builtin-schema", f"vendor.{schema}", str(EXAMPLES / name)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout


def test_both_jobs_have_the_same_secrets_and_remove_them_whatever_happens() -> None:
    first, second = (job["steps"] for job in document("github-nodes.yml")["jobs"].values())
    assert [step for step in first if step.get("name") == WRITE] == [
        step for step in second if step.get("name") == WRITE
    ]
    assert first[-1]["if"] == second[-1]["if"] == "always()"
    page = document("gitlab-ci.yml")
    assert not any(key in page[job] for job in ("plan", "apply") for key in ("before_script", "after_script"))
