"""Options of one command as the fields of a dataclass, where they are too many for parameters."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

OWN = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """An option but for its name, which is that of its field."""

    panel: str
    help: str
    metavar: str | None = None
    read: Callable[[str], Any] | None = None
    least: int | None = None
    most: int | None = None

    def option(self, name: str, default: object) -> Any:
        """The same for typer; an empty default is none to be shown."""
        return typer.Option(
            f"--{name.replace('_', '-')}",
            metavar=self.metavar,
            parser=self.read,
            min=self.least,
            max=self.most,
            show_default=default != "",
            help=self.help,
            rich_help_panel=self.panel or None,
        )


def options_of(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation for typer, and default of each field of such a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    for item in fields(kind):
        annotated, flag = get_args(hints[item.name])
        yield item.name, Annotated[annotated, flag.option(item.name, item.default)], item.default


def taken(kind: Any, received: Mapping[str, Any]) -> Any:
    """The dataclass of what typer received for its fields."""
    return kind(**{item.name: received[item.name] for item in fields(kind)})
