"""What follows from an option's declaration, held against every option that the program has."""

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from rollout.cli.options.declaration import NODES, OWN, Flag
from rollout.cli.options.flattening import flattened
from tests.docs import reference

# the variable of `rollout abort --wait` is taken by the time that it waits
OWN_VARIABLES = {
    ("check-update", "--wait"): "ROLLOUT_CHECK_UPDATE_WAIT",
    # nodes that are chosen for all commands are not all to be forgiven
    ("release", "--node"): "ROLLOUT_RELEASE_NODE",
    ("report", "--format"): "ROLLOUT_REPORT_FORMAT",
}
# commands that take no settings: what they start, or print, is no cluster of the operator's
WITHOUT_SETTINGS = ("demo", "lab up", "fleetlock zincati")
NOT_IN_ENVIRONMENT = {("inventory", "--list"), ("inventory", "--host")}


def test_the_variable_of_every_option_follows_from_its_flag() -> None:
    for command, option in reference.options():
        flag = next(name for name in option.opts if name.startswith("--"))
        if command in WITHOUT_SETTINGS or (command, flag) in NOT_IN_ENVIRONMENT:
            continue
        derived = "ROLLOUT_" + flag.removeprefix("--").replace("-", "_").upper()
        assert option.envvar == OWN_VARIABLES.get((command, flag), derived), (command, flag)


def option_of(declaration: Any, default: object) -> Any:
    """The option that a command gets whose parameter `some_name` is declared so."""

    def command(some_name: Any = default) -> None:
        del some_name

    command.__annotations__["some_name"] = Annotated[bool if isinstance(default, bool) else str, declaration]
    app = typer.Typer()
    app.command()(flattened(command))
    (option, *_) = typer.main.get_command(app).params
    return option


def test_name_heading_and_text_follow_from_the_declaration() -> None:
    option = option_of(Flag(NODES, "What it does.", "WORD", short="-s"), "word")
    assert (option.opts, option.envvar) == (["--some-name", "-s"], "ROLLOUT_SOME_NAME")
    assert (option.rich_help_panel, option.help, option.metavar) == (NODES, "What it does.", "WORD")
    assert option.show_default
    assert not option.show_envvar


def test_a_switch_is_turned_off_by_name_only_where_it_is_declared_so() -> None:
    negated = option_of(Flag(OWN, "What it does.", negated=True), default=True)
    plain = option_of(Flag(OWN, "What it does."), default=True)
    assert (negated.opts, negated.secondary_opts) == (["--some-name"], ["--no-some-name"])
    assert (plain.opts, plain.secondary_opts) == (["--some-name"], [])
    assert negated.rich_help_panel is None


def test_an_empty_default_is_not_shown() -> None:
    assert not option_of(Flag(OWN, "What it does."), "").show_default


def test_another_variable_is_written_out() -> None:
    assert option_of(Flag(OWN, "What it does.", variable="ROLLOUT_OTHER"), "").envvar == "ROLLOUT_OTHER"


@dataclass(frozen=True, slots=True)
class Inner:
    word: Annotated[str, Flag(OWN, "A word.")] = "inner"


@dataclass(frozen=True, slots=True)
class Outer:
    inner: Inner
    count: Annotated[int, Flag(OWN, "A count.")] = 1


def test_a_group_may_hold_groups() -> None:
    groups: list[Outer] = []

    def command(outer: Outer) -> None:
        groups.append(outer)

    app = typer.Typer()
    app.command()(flattened(command))
    app(["--word", "given", "--count", "2"], standalone_mode=False)
    app([], standalone_mode=False)
    assert groups == [Outer(Inner("given"), 2), Outer(Inner("inner"), 1)]
