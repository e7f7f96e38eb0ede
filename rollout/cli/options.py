"""Options and arguments as a command declares them for typer, and how their texts are read.

The help of the whole program loads this module, but not the schema of the settings.
"""

from collections.abc import Callable
from typing import Any, TypeVar, get_args, get_origin

import typer

from rollout.cli.settings.setting import Setting
from rollout.errors import UsageError
from rollout.model.quantity import LONGEST

T = TypeVar("T")
Suggestions = Callable[[typer.Context, str], list[str]]


def option(default: T, help: str, metavar: str = "", *names: str, **others: Any) -> T:
    """Declare an option of one command, named like its parameter; `others` are typer's."""
    declared: T = typer.Option(
        default, *names, metavar=metavar or None, help=help, show_default=bool(default), **others
    )
    return declared


def argument(
    default: Any,
    help: str,
    metavar: str,
    suggest: Suggestions | None = None,
    parser: Callable[[str], str] | None = None,
) -> Any:
    """Declare an argument of one command; with the default `...` it is required."""
    has_default = default not in (..., None, "")
    return typer.Argument(
        default,
        metavar=metavar,
        help=help,
        show_default=has_default,
        autocompletion=suggest,
        parser=parser,
    )


class PlainValue:
    """Reads a parameter's text by its type. typer would load pydantic, which takes 0.15 s."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; `typer.BadParameter` names the parameter."""
        declared = param.type_descriptor.parameter_info
        kind = param.type_descriptor.annotation
        setting = Setting(
            kind=get_args(kind)[0] if get_origin(kind) is list else kind,
            parse=declared.parser,
            words=param.type_descriptor.choices or (),
            least=declared.min,
            most=LONGEST if declared.max is None else declared.max,
        )
        is_list = param.multiple or param.nargs == -1
        items = (value or ()) if is_list else [value]
        texts = [item for item in items if isinstance(item, str)]
        if value != param.default and not all(text.strip(" ,;") for text in texts):
            # Otherwise an empty --node would select all nodes.
            why = "it is empty; was a shell variable unset?"
            raise typer.BadParameter(why, ctx=ctx, param=param)
        try:
            if is_list:
                return [setting.read(text) for text in texts]
            return setting.read(value) if texts and kind is not bool else value
        except UsageError as error:
            why = f"{error.message}. {error.hint}"
            raise typer.BadParameter(why, ctx=ctx, param=param) from error
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error
