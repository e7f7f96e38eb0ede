"""Groups of options as dataclasses, where typer wants one parameter an option.

A command declares `(cluster: ClusterOptions, ssh: SshOptions)`; typer sees every field of both, and the command
gets the two values. So an option is declared once, and no function has forty parameters.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from rollout.cli.options.declaration import Flag


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a dataclass replaced by that dataclass's fields."""
    hints = _hints(command)
    groups = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    signature = inspect.signature(command)

    @functools.wraps(command)
    def with_groups(**values: Any) -> None:
        command(**_grouped(values, groups))

    parameters = [part for item in signature.parameters.values() for part in _parts(item, groups, hints)]
    with_groups.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_groups.__annotations__ = {part.name: part.annotation for part in parameters}
    return with_groups


def _hints(function: Callable[..., None]) -> Mapping[str, Any]:
    return {name: hint for name, hint in get_type_hints(function, include_extras=True).items() if name != "return"}


def _parts(
    parameter: inspect.Parameter, groups: Mapping[str, Any], hints: Mapping[str, Any]
) -> Iterable[inspect.Parameter]:
    if parameter.name not in groups:
        return [_parameter(parameter.name, hints[parameter.name], parameter.default)]
    group = groups[parameter.name]
    own_hints = get_type_hints(group, include_extras=True)
    return [_parameter(item.name, own_hints[item.name], item.default) for item in fields(group)]


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    """One parameter of typer's, with its `Flag`, if it has one, as typer's own declaration."""
    if get_origin(hint) is Annotated:
        kind, *declarations = get_args(hint)
        hint = Annotated[(kind, *(_for_typer(one, name, default) for one in declarations))]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _for_typer(declaration: Any, name: str, default: Any) -> Any:
    return declaration.option(name, default) if isinstance(declaration, Flag) else declaration


def _grouped(values: Mapping[str, Any], groups: Mapping[str, Any]) -> Mapping[str, Any]:
    owned = {item.name for group in groups.values() for item in fields(group)}
    plain = {name: value for name, value in values.items() if name not in owned}
    built = {name: group(**{item.name: values[item.name] for item in fields(group)}) for name, group in groups.items()}
    return {**plain, **built}
