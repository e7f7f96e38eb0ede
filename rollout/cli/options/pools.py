"""Pools from the settings file: `[[pool]]` tables, whose keys are a name, `after`, and flags that differ for its nodes.

    [[pool]]
    name = "canary"
    selector = "pool=canary"
    max-unavailable = 1

    [[pool]]
    name = "web"
    selector = "pool=web"
    after = ["canary"]
    max-unavailable = "25%"
    drain-timeout = "30m"

Nodes belong to the first that matches. There is no other way to give pools: no flag, no variable.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer

from rollout.cli.options import values
from rollout.cli.settings.defaults import POOL_KEY, POOL_TABLES, SETTINGS_FILE, by_key
from rollout.errors import UsageError
from rollout.model.policy import Pool, Strategy
from rollout.model.quantity import Count

_NAME_HINT = 'Write name = "web": at most 63 lower-case letters, digits and dashes.'


def given(context: typer.Context) -> tuple[Pool, ...]:
    """The pools of the settings file; none without one."""
    return read_pools(context.meta.get(POOL_TABLES, []), context.meta.get(SETTINGS_FILE, ""))


def read_pools(written: Any, origin: str) -> tuple[Pool, ...]:
    """The pools as `[[pool]]` writes them; `UsageError` names the file, the pool and the key that is wrong."""
    from rollout.planning.pools import ordered

    if not isinstance(written, list) or not all(isinstance(table, dict) for table in written):
        raise UsageError(
            f"{origin}: {POOL_KEY} = {written!r} is not a table", hint="Write each pool under its own [[pool]]."
        )
    pools = tuple(
        _pool(table, f"{origin} [[{POOL_KEY}]] number {place}") for place, table in enumerate(written, start=1)
    )
    try:
        ordered(pools)
    except UsageError as error:
        raise UsageError(f"{origin}: {error.message}", hint=error.hint) from error
    return pools


def _pool(table: Mapping[str, Any], place: str) -> Pool:
    settings = by_key(table, place)
    name = _named(settings.get("name"), place)
    place = f"{place} ({name})"
    _refuse_unknown(settings, place)
    if not settings.get("selector"):
        raise UsageError(
            f"{place}: it has no selector", hint='Write selector = "LABEL=VALUE". Nodes in no pool need no table.'
        )
    return Pool(**{key.replace("-", "_"): _value(key, value, place) for key, value in settings.items()})


def _named(name: Any, place: str) -> str:
    if not isinstance(name, str) or not values.is_label_like(name):
        what = f"its name {name!r} cannot be one" if name is not None else "it has no name"
        raise UsageError(f"{place}: {what}", hint=_NAME_HINT)
    return name


def _refuse_unknown(settings: Mapping[str, Any], place: str) -> None:
    known = [item.name.replace("_", "-") for item in fields(Pool)]
    for key in settings:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"A pool has: {', '.join(known)}."
            raise UsageError(f"{place}: unknown setting {key!r}", hint=hint)


def _value(key: str, value: Any, place: str) -> Any:
    read = _readers()[key]
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{place}: {key} = {value!r}: {error}") from error


def _readers() -> Mapping[str, Callable[[Any], Any]]:
    """By key, what makes a value of what is written; the same words as the flags'."""
    return {
        "name": str,
        "selector": _text(values.label_selector),
        "after": _names,
        "max-unavailable": _text(values.at_least_one),
        "canary": _whole,
        "ramp": _text(lambda text: _counts(values.ramp(text))),
        "strategy": _text(_strategy),
        "spread-by": _text(values.label_name),
        "reboot-idle": _truth,
        "drain-timeout": _text(values.some_time),
        "reboot-timeout": _text(values.some_time),
        "ready-timeout": _text(values.some_time),
    }


def _text(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    def read_text(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise TypeError("it takes one value, as its flag does")
        return read(str(value))

    return read_text


def _counts(text: str) -> tuple[Count, ...]:
    return tuple(map(Count.parse, text.split(","))) if text else ()


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError("it takes a whole number from 0 on")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("write true or false, without quotes")
    return value


def _names(value: Any) -> Sequence[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("it takes names of pools, in a list")
    return tuple(dict.fromkeys(names))


def _strategy(text: str) -> Strategy:
    if text not in set(Strategy):
        raise ValueError(f"it is one of {', '.join(Strategy)}")
    return Strategy(text)
