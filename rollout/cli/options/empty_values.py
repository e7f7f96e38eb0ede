"""A value that is empty on the command line, as `--node "$NODE"` is where a shell's variable is not set.

It would mean that nothing was given: all nodes in place of one, no window in place of a night. So it is refused, but
where it takes back what the environment or a file says.
"""

import os
from collections.abc import Iterator
from typing import Any

import typer

from rollout.cli.settings.defaults import SETTINGS_FILE
from rollout.cli.settings.reserved import REREAD
from rollout.cli.terminal import say


def refuse_empty(context: Any, parameter: Any, value: object) -> None:
    """`typer.BadParameter` for an empty word on the command line; of one that takes something back, a warning."""
    if not _is_empty(value) or getattr(context.get_parameter_source(parameter.name), "name", "") != "COMMANDLINE":
        return
    is_flag = parameter.param_type_name == "option"
    if not is_flag or not (origins := list(_origins_below(context, parameter))):
        what = "Drop the flag, or give it a value." if is_flag else "Drop it, or name what is meant."
        raise typer.BadParameter(
            f"it is empty, as a variable of a shell is that was not set. {what}", ctx=context, param=parameter
        )
    if REREAD not in context.meta:
        flag = max(parameter.opts, key=len)
        say(f"warning: {flag} is empty: what {' and '.join(origins)} says of it does not count")


def _is_empty(value: object) -> bool:
    words = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(word, str) and not word.strip() for word in words)


def _origins_below(context: Any, parameter: Any) -> Iterator[str]:
    """What would count without the flag: a variable, a settings file."""
    if isinstance(parameter.envvar, str) and os.environ.get(parameter.envvar):
        yield parameter.envvar
    if (context.default_map or {}).get(parameter.name):
        yield context.meta[SETTINGS_FILE]
