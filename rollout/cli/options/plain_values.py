"""What an option's value becomes, where that is plain to see: typer loads pydantic to find out, 0.15 s of each command.

Only what needs no judgement is read here, as typer reads it. All else, and all that is wrong, is left to typer, which
knows the words for it.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from rollout.cli.options.empty_values import refuse_empty

# Typer's words, which do not name the value.
_NO_NUMBER = "Input should be a valid integer, unable to parse"


class _NotPlain(Exception):  # noqa: N818 - it never leaves this file
    """Typer is to judge."""


def read_plainly(parameters: Sequence[Any]) -> None:
    """Have these parameters of a typer command, options and arguments, read plain values without typer's machinery."""
    for parameter in parameters:
        # once: a process that runs for long reads its command line again
        if "process_value" not in vars(parameter):
            parameter.process_value = _reader(parameter, parameter.process_value)


def _reader(parameter: Any, ordinary: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def process_value(context: Any, value: Any) -> Any:
        try:
            plain = _value(parameter, value)
        except _NotPlain:
            judged = _by_typer(ordinary, context, value)
        else:
            judged = parameter.callback(context, parameter, plain) if parameter.callback else plain
        refuse_empty(context, parameter, value)
        return judged

    return process_value


def _by_typer(ordinary: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """As typer reads it; what is no number is told in our words, for its own do not name it."""
    try:
        return ordinary(context, value)
    except typer.BadParameter as error:
        if error.message.startswith(_NO_NUMBER):
            error.message = f"{value!r} is not a whole number."
        raise


def _value(parameter: Any, value: Any) -> Any:
    kind, declared = parameter.type_descriptor.annotation, parameter.type_descriptor.parameter_info
    if parameter.required and value in (None, (), []):
        raise _NotPlain
    if value is None:
        return () if parameter.multiple or parameter.nargs == -1 else None
    if get_origin(kind) is not list:
        return _single(kind, declared, value)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _NotPlain
    return [_single(get_args(kind)[0], declared, item) for item in value]


def _single(kind: Any, declared: Any, value: Any) -> Any:
    if declared.parser is not None:
        return _parsed(declared.parser, value)
    if isinstance(kind, type) and type(value) is kind and (kind in (str, bool) or issubclass(kind, Enum)):
        return value
    if kind is int:
        return _number(declared, value)
    if kind is Path and isinstance(value, str):
        return _path(declared, value)
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, str):
        with suppress(ValueError):
            return kind(value)
    raise _NotPlain


def _parsed(parser: Callable[[Any], Any], value: Any) -> Any:
    """Whatever it cannot read, typer has it read again, and says what is wrong."""
    try:
        return parser(value)
    except Exception as error:
        raise _NotPlain from error


def _number(declared: Any, value: Any) -> int:
    is_written = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < len(str(1 << 31))
    if not is_written and type(value) is not int:
        raise _NotPlain
    number = int(value)
    if declared.clamp or number < (number if declared.min is None else declared.min):
        raise _NotPlain
    if number > (number if declared.max is None else declared.max):
        raise _NotPlain
    return number


def _path(declared: Any, value: str) -> Path:
    """One that may be read, or does not exist: what more is asked of it, typer looks at."""
    is_asked_more = declared.exists or declared.writable or declared.resolve_path or declared.allow_dash
    if is_asked_more or declared.path_type is not None or not (declared.file_okay and declared.dir_okay):
        raise _NotPlain
    path = Path(value)
    try:
        is_fine = os.access(path, os.R_OK) or not path.exists()
    except (OSError, ValueError) as error:
        raise _NotPlain from error
    if not is_fine:
        raise _NotPlain
    return path
