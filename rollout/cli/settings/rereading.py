"""A command's settings, read again while it runs: the same words on the command line, the file as it is now."""

from collections.abc import Sequence
from typing import Any, TypeVar

import typer

from rollout.cli.settings.defaults import POOL_TABLES, SETTINGS_FILE
from rollout.cli.settings.reserved import REREAD
from rollout.errors import UsageError

T = TypeVar("T")

_WORDS = "rollout.words"


def remember(context: typer.Context, words: Sequence[str]) -> None:
    """Keep the command line of a command, as it is about to be parsed."""
    context.meta[_WORDS] = tuple(words)


def reread(context: typer.Context, kind: type[T]) -> T:
    """What the command hands to `answer` by the settings of now; whatever it raises where they are broken.

    A file that was there and is gone is broken, too: rules would vanish with it.
    """
    before = {key: context.meta.get(key) for key in (SETTINGS_FILE, POOL_TABLES)}
    answers: list[Any] = []
    try:
        context.meta.update({SETTINGS_FILE: None, POOL_TABLES: [], REREAD: answers})
        _invoke(context)
        _refuse_vanished(before[SETTINGS_FILE], context.meta[SETTINGS_FILE])
    except BaseException:
        context.meta.update(before)
        raise
    finally:
        del context.meta[REREAD]
    (answer,) = answers
    if not isinstance(answer, kind):
        raise TypeError(answer)
    return answer


def answer(context: typer.Context, settings: object) -> bool:
    """Whether the command was only asked for its settings, which these are."""
    asked = context.meta.get(REREAD)
    if asked is None:
        return False
    asked.append(settings)
    return True


def _refuse_vanished(before: str | None, now: str | None) -> None:
    if before and not now:
        raise UsageError(f"the settings file {before} is gone")


def _invoke(context: typer.Context) -> None:
    command: Any = context.command
    fresh = command.make_context(context.info_name, list(context.meta[_WORDS]), parent=context.parent)
    with fresh:
        command.invoke(fresh)
