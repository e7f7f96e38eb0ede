"""Values that are read without typer's machinery: as it reads them, whatever the option; what is wrong it refuses."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollout.cli.main import program
from rollout.cli.options.plain_values import read_plainly

WRITTEN = ["", " ", "0", "1", "-1", "007", "٣", "99999999999", "1.5", "25%", "5m", "1h30m", "never", "true", "FALSE"]
WRITTEN += ["json", "JSON", "waves", "ssh", "strict", "a=b", "a in (b,c)", "kube-system", "Not A Name", "/", ".", "~"]
WRITTEN += ["/nonexistent/x", "-", "a\nb", "a\x00b", "http://127.0.0.1:1", "nan", "1e3", "٪"]
NO_NUMBER = "Input should be a valid integer, unable to parse"
# What reads their values does something.
ACTING = ("version", "help", "config", "install_completion", "show_completion")


def commands(command: Any) -> Iterator[Any]:
    """All commands, and those within groups."""
    yield command
    for member in getattr(command, "commands", {}).values():
        yield from commands(member)


def parameters() -> Iterator[tuple[Any, Any]]:
    """Every option and argument of every command, with a context to read it in."""
    for command in commands(program()):
        context = command.make_context("rollout", [], resilient_parsing=True)
        for parameter in command.params:
            # what a line that is being typed has put there
            vars(parameter).pop("process_value", None)
            yield context, parameter


def outcome(parameter: Any, context: Any, value: object) -> tuple[str, str]:
    """What it becomes, or how it is refused."""
    try:
        read = parameter.process_value(context, value)
    except Exception as error:  # noqa: BLE001 - whichever, it is to be the same one
        return type(error).__name__, str(error)
    return type(read).__name__, re.sub(r" at 0x\w+", "", repr(read))


def worded(outcome: tuple[str, str], value: object) -> tuple[str, str]:
    """The same; what is no number is refused in words that name it, in place of typer's."""
    kind, words = outcome
    return (kind, f"{value!r} is not a whole number.") if words.startswith(NO_NUMBER) else outcome


def test_every_option_of_every_command_is_read_as_typer_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    readable, secret = tmp_path / "readable", tmp_path / "secret"
    for file in (readable, secret):
        file.write_text("")
    secret.chmod(0)
    known: dict[str, list[tuple[str, str]]] = {}
    for context, parameter in parameters():
        declared = parameter.type_descriptor
        name = f"{parameter.name}, {declared.annotation}, {declared.parameter_info.parser}, {parameter.default!r}"
        if name in known or parameter.name in ACTING:
            continue
        written: list[object] = [*WRITTEN, str(readable), str(secret)]
        many = parameter.multiple or parameter.nargs == -1
        values = [None, parameter.default, *([[value] for value in written] if many else written)]
        values += [[], ("a", "a=b")] if many else []
        before = [worded(outcome(parameter, context, value), value) for value in values]
        read_plainly([parameter])
        known[name] = [outcome(parameter, context, value) for value in values]
        assert known[name] == before, name
    assert len(known) > 150
