"""Writes the generated parts of the documents anew: `python -m tests.docs.pages`, in the project's folder.

A table stands in a page between `<!-- begin NAME -->` and `<!-- end NAME -->`; what is around it is
written by hand.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.docs import reference, schemas, settings_schema

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCHEMAS = DOCS / "schemas"
SETTINGS_SCHEMAS = (
    SCHEMAS / f"{settings_schema.NAME}.json",
    ROOT / "charts" / "node-rollout" / "settings.schema.json",
)
"""The chart reads its own copy: Helm shows a template no file outside its chart."""
TABLES: Mapping[str, Callable[[], str]] = {
    **reference.TABLES,
    **{f"{command} fields": partial(schemas.tables, command) for command in schemas.DOCUMENTS},
    "schemas": schemas.listing,
}
PLACES: Mapping[str, str] = {
    "exit codes": "history.md",
    "flags": "configuration.md",
    "keys": "configuration.md",
    "reasons": "json.md",
    "blockers": "json.md",
    "warnings": "json.md",
    "outcomes": "json.md",
    "phases": "concepts.md",
    "moves": "json.md",
    "rules": "json.md",
    "rights": "security.md",
    "commands": "configuration.md",
    "metrics": "metrics-and-notifications.md",
    "fleetlock answers": "json.md",
    **{f"{command} fields": "json.md" for command in schemas.DOCUMENTS},
    "schemas": "json.md",
}
"""The page that holds each table."""


def rewritten(text: str) -> str:
    """The page with every table in it made anew."""
    for name, make in TABLES.items():
        if f"<!-- begin {name} -->" in text:
            text = _block(name).sub(partial(_filled, make()), text)
    return text


def block(name: str) -> str:
    """A table as it stands in its page."""
    match = _block(name).search((DOCS / PLACES[name]).read_text(encoding="utf-8"))
    if match is None:
        raise AssertionError(f"docs/{PLACES[name]} has no place for {name}")
    return match[2].strip()


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- begin {name} -->\n)(.*?)(<!-- end {name} -->)", re.DOTALL)


def _filled(table: str, match: re.Match[str]) -> str:
    return f"{match[1]}\n{table}\n\n{match[3]}"


def write() -> None:
    """Every page and every schema."""
    for page in sorted(DOCS.glob("*.md")):
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMAS.mkdir(exist_ok=True)
    for command in schemas.DOCUMENTS:
        (SCHEMAS / f"{command}.json").write_text(schemas.written(command), encoding="utf-8")
    for file in SETTINGS_SCHEMAS:
        file.write_text(settings_schema.text(), encoding="utf-8")


if __name__ == "__main__":
    write()
