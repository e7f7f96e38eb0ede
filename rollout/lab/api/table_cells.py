"""What a table is made of: columns, and the functions that fill their cells."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from rollout.lab.api.durations import age
from rollout.lab.api.store import Json

NONE = "<none>"

Value = str | int | bool
Cell = Callable[[Json, datetime], Value]


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `priority` 1 is shown only in wide output."""

    name: str
    cell: Cell
    description: str = ""
    type: str = "string"
    format: str = ""
    priority: int = 0

    def definition(self) -> Json:
        """The column as a Table names it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


def wide(column: Column) -> Column:
    """The column, shown only in wide output."""
    return replace(column, priority=1)


def field_of(obj: Json, path: str) -> object:
    """A field by its dotted path, None where anything on the way is missing."""
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def text(name: str, path: str, description: str = "", *, absent: str = "") -> Column:
    """A column that shows a field."""

    def cell(obj: Json, _now: datetime) -> Value:
        value = field_of(obj, path)
        return absent if value in (None, "") else str(value)

    return Column(name, cell, description)


def number(name: str, path: str, description: str = "") -> Column:
    """A column that shows a count."""

    def cell(obj: Json, _now: datetime) -> Value:
        value = field_of(obj, path)
        return value if isinstance(value, int) else 0

    return Column(name, cell, description, type="integer")


def labels_text(labels: dict[str, str] | None) -> str:
    """`a=b,c=d`, or `<none>`."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


NAME = Column("Name", lambda obj, _now: obj["metadata"]["name"], "Name of the object.", format="name")
AGE = Column("Age", lambda obj, now: age(obj["metadata"].get("creationTimestamp"), now), "Time since its creation.")
