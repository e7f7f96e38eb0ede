"""`--help` in sections, one a group of options, as plain text.

typer's own boxes cut long flags short in a terminal of 80 columns, and cost more to draw than everything else that
`rollout --help` does.
"""

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperCommand

from rollout.cli.settings.rereading import remember

_LAST = "Options"


class SectionedCommand(TyperCommand):
    """A command whose help lists its options under the headings they were declared with.

    It keeps the words that it was called with: whoever runs for long reads its settings again.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """The same as ever."""
        remember(ctx, args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Arguments first, then the groups in the order of their first option, then what has no group."""
        sections = _sections(self.get_params(ctx), ctx)
        for title in sorted(sections, key=lambda title: (title != "Arguments", title == _LAST)):
            with formatter.section(title):
                formatter.write_dl(sections[title])


def _sections(parameters: Iterable[Any], context: typer.Context) -> dict[str, list[tuple[str, str]]]:
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in parameters:
        record = parameter.get_help_record(context)
        if record is not None:
            sections.setdefault(_title(parameter), []).append(record)
    return sections


def _title(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return "Arguments"
    return getattr(parameter, "rich_help_panel", None) or _LAST
