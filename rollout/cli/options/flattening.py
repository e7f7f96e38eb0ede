"""Groups of options as dataclasses, where typer wants one parameter an option.

A command declares `(cluster: ClusterOptions, ssh: SshOptions)`; typer sees every field of both, and the command
gets the two values. So an option is declared once, and no function has forty parameters. A group may hold groups, and
one that has a method `opened` is entered, with the command's name, for as long as the command runs.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from rollout.cli.options.declaration import Flag

G = TypeVar("G")


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a dataclass replaced by that dataclass's fields."""
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)

    @functools.wraps(command)
    def with_groups(**values: Any) -> None:
        given = {name: _value(name, hints[name], values) for name in signature.parameters}
        with ExitStack() as open_groups:
            for opened in [group.opened for group in given.values() if hasattr(group, "opened")]:
                open_groups.enter_context(opened(command.__name__.replace("_", "-")))
            command(**given)

    parameters = [
        part for item in signature.parameters.values() for part in _parts(item.name, hints[item.name], item.default)
    ]
    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {part.name: part.annotation for part in parameters}
    return with_groups


def group(kind: type[G], values: Mapping[str, Any]) -> G:
    """A group built of its fields' values."""
    return cast("G", _value("", kind, values))


def _parts(name: str, hint: Any, default: Any) -> Iterator[inspect.Parameter]:
    """The parameters that stand for one of the command's own: of a group, one a field."""
    if not is_dataclass(hint):
        yield _parameter(name, hint, default)
        return
    hints = get_type_hints(hint, include_extras=True)
    for item in fields(hint):
        yield from _parts(item.name, hints[item.name], item.default)


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """One parameter of typer's, with its `Flag`, if it has one, as typer's own declaration."""
    if get_origin(hint) is Annotated:
        kind, *declarations = get_args(hint)
        hint = Annotated[(kind, *(_for_typer(declaration, name, default) for declaration in declarations))]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _for_typer(declaration: Any, name: str, default: Any) -> Any:
    return declaration.option(name, default) if isinstance(declaration, Flag) else declaration


def _value(name: str, hint: Any, values: Mapping[str, Any]) -> Any:
    """What the command gets: a group built of its fields' values, or the value itself."""
    if not isinstance(hint, type) or not is_dataclass(hint):
        return values[name]
    hints = get_type_hints(hint, include_extras=True)
    return hint(**{item.name: _value(item.name, hints[item.name], values) for item in fields(hint)})
