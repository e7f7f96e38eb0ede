"""Every command line of the documents is one that the program takes; so is every flag that a
message names.
"""

import ast
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from rollout.cli.main import root_command
from rollout.cli.settings.reading import (
    PlacedValue,
    SettingsFile,
    assignments,
    merge_settings,
    unknown_variables,
)
from rollout.cli.settings.schema import settings
from rollout.errors import UsageError
from tests.docs.pages import DOCS, ROOT
from tests.docs.test_blocks import blocks

PROGRAM = "rollout"
_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
# What a shell keeps for itself: whoever comes after it is another command, or a file.
_ENDS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTION = re.compile(r"\d?(>>?|<)&?\d?")
_OPENING = re.compile(r"(?:^|[`(:;,.] ?|\bor |\bthen:? )(rollout [a-z-]+[^`,;:.()]*)")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Words after the program's name, and where they stand."""

    place: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.place}: {shlex.join(self.words)}"


def of_page(page: Path) -> Iterator[CommandLine]:
    """In its blocks for a shell, and in the spans of its text; what a table holds is a span, too."""
    for block in blocks(page):
        variables = dict(re.findall(r"^ *(\w+)=(\S+)", block.text, re.MULTILINE))
        for line in block.text.replace("\\\n", " ").splitlines():
            # of a console's block only what is typed
            typed = line.strip().removeprefix("$ ")
            for name, value in variables.items():
                typed = typed.replace(f"${name}", value)
            yield from _of_line(page.name, typed)
    for span in re.findall(r"`([^`]+)`", _FENCE.sub("", page.read_text(encoding="utf-8"))):
        if span.startswith(f"{PROGRAM} "):
            # brackets stand for what may be left out, dots for more of it
            yield from _of_line(page.name, re.sub(r"\[|\]|\.\.\.", "", " ".join(span.split())))


def _of_line(place: str, line: str) -> Iterator[CommandLine]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    commands: list[list[str]] = [[]]
    for word in words:
        if word in _ENDS:
            commands.append([])
        else:
            commands[-1].append(word)
    for command in commands:
        if command and command[0].rpartition("/")[2] == PROGRAM:
            yield CommandLine(place, tuple(_without_redirections(command[1:])))


def _without_redirections(words: Sequence[str]) -> Iterator[str]:
    """A redirection's file is no word of the command."""
    rest = iter(words)
    for word in rest:
        if _REDIRECTION.fullmatch(word):
            next(rest, None)
        else:
            yield word


def of_code(module: Path) -> Iterator[CommandLine]:
    """In the texts of a module: hints, helps, notes. What stands in braces is a name that is not
    known here.
    """
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        for text in _texts(node):
            for begin in _OPENING.findall(text):
                yield CommandLine(module.name, tuple(begin.split()[1:]))


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "NAME" for part in node.values
        )


PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
# Of another program.
FOREIGN = {
    "--check",
    "--concurrency",
    "--lock-annotation",
    "--lock-ttl",
    "--skip-wait-for-delete-timeout",
    "--timeout",
}
# Words of the pages that stand for others, of which a command takes but some.
MEANT = {
    **dict.fromkeys(("rollout.toml", "cluster.toml", "/etc/rollout.toml"), "settings.toml"),
    "COMMAND": "plan",
    "SHELL": "bash",
    "TIME": "2d",
    "KIND": "cronjob",
}
Parse = Callable[[Sequence[str]], None]


def commands(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*names, name))
    if not hasattr(command, "commands"):
        yield names, command


def flags_of(command: Any) -> set[str]:
    return {name for option in command.params for name in (*option.opts, *option.secondary_opts)}


def judge(words: Sequence[str]) -> None:
    """The settings among these words, as a command would read them."""
    flags = {f"--{setting.flag}": name for name, setting in settings().items() if setting.flag}
    pairs = list(zip(words, (*words[1:], ""), strict=True))
    if words[0] in ("lab", "manifests"):
        return
    typed = {
        flags[word]: value
        for word, value in pairs
        if word in flags and settings()[flags[word]].kind is not bool
    }
    said = assignments(
        value for word, value in pairs if word == "--set" and not value.partition("=")[2].isupper()
    )
    merge_settings(
        SettingsFile(),
        said,
        {
            name: PlacedValue(value, "a flag")
            for name, value in typed.items()
            if not value.isupper()
        },
    )


@pytest.fixture(scope="module")
def whole() -> Any:
    """The program, whose commands do nothing once their words are read."""
    made = root_command()
    for _, command in commands(made):
        command.callback = lambda **_values: None
    return made


@pytest.fixture
def parse(whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parse:
    """Read a line in a folder that has the settings files which the pages name."""
    monkeypatch.chdir(tmp_path)

    def read(words: Sequence[str]) -> None:
        (tmp_path / "settings.toml").write_text("")
        # what the program itself does at once, as to install completion, is known by its name
        if words[0] not in flags_of(whole):
            whole(
                [MEANT.get(word, word) for word in words],
                prog_name="rollout",
                standalone_mode=False,
            )
        judge(words)

    return read


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_program_takes_each_line_of_the_documents(page: Path, parse: Parse) -> None:
    refused = []
    for line in of_page(page):
        try:
            parse(line.words)
        except (typer.TyperException, UsageError) as error:
            refused.append(f"{line}: {error}")
    assert refused == []


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "moving.md"], ids=lambda page: page.name
)
def test_each_flag_in_a_text_is_one(page: Path, whole: Any) -> None:
    """Of the page on moving here `test_moving.py` looks at our side of its tables."""
    known = {flag for _, command in commands(whole) for flag in flags_of(command)} | flags_of(whole)
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    spans = [" ".join(span.split()) for span in re.findall(r"`(-[^`]+)`", text)]
    named = {re.split(r"[ =/,]", span)[0] for span in spans if span.startswith("--")}
    assert named - known - FOREIGN == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_variable_in_a_text_is_one(page: Path) -> None:
    written = set(re.findall(r"\bROLLOUT_[A-Z_]*[A-Z]\b", page.read_text(encoding="utf-8")))
    assert list(unknown_variables(dict.fromkeys(written - {"ROLLOUT_GATE"}, "x"))) == []


def test_each_flag_that_a_message_names_is_one_of_its_command(whole: Any) -> None:
    wrong = [
        line
        for module in sorted((ROOT / "rollout").rglob("*.py"))
        for line in of_code(module)
        if odd(line, whole)
    ]
    assert wrong == []


def odd(line: CommandLine, command: Any) -> bool:
    """Whether it names a flag that its command has not; a line that begins with no command is a
    sentence.
    """
    words = list(line.words)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    flags = {word for word in words if re.fullmatch(r"--[a-z-]+", word)}
    is_group = hasattr(command, "commands")
    return not is_group and not flags <= flags_of(command)
