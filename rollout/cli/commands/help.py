"""`rollout help`: the help of a command, and man pages made of the same help."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from rollout import __version__
from rollout.cli.flags import argument, option
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import say, show
from rollout.errors import UsageError


def _names(context: typer.Context, incomplete: str) -> list[str]:
    return [name for name in context.find_root().command.commands if name.startswith(incomplete)]  # type: ignore[attr-defined]


_EXAMPLES = "Examples:"
_MARK = "\b"
# longer than any line that describes a command
_LINE = 200
_PAGES = "Write a man page for every command to this folder"


def help(  # noqa: A001 - the command's name
    call: typer.Context,
    command: list[str] | None = argument(None, "The command.", "COMMAND", _names),
    man_pages: Path | None = option(None, _PAGES, "DIR", "--man-pages"),
) -> None:
    """Show the help of a command, as with --help, or write man pages.

    \b
    Examples:
      rollout help plan
      rollout help --man-pages ~/.local/share/man/man1 && man rollout-plan
    """
    root = call.find_root()
    if man_pages is not None:
        _write(man_pages, root)
        return
    asked: Any = root.command
    context: Any = root
    for word in command or ():
        members = getattr(asked, "commands", {})
        if word not in members:
            raise UsageError(
                f"there is no command {' '.join(command or ())}", hint=f"{PROGRAM} --help"
            )
        asked = members[word]
        context = typer.Context(asked, info_name=word, parent=context)
    show(asked.get_help(context))


def _write(folder: Path, root: Any) -> None:
    from rollout.adapters.local_files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    pages = pages_of(root.command, PROGRAM)
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    say(f"{len(pages)} man pages are in {folder}. Read one: man -l {folder / f'{PROGRAM}.1'}")


def pages_of(program: Any, name: str) -> Mapping[str, str]:
    """Return the man page of each command by its file name: rollout.1, rollout-plan.1, rollout-lab-up.1."""
    commands = dict(_commands(program, name, None))
    return {
        f"{_dash(path)}.1": _page(path, command, context)
        for path, (command, context) in commands.items()
    }


def _commands(command: Any, path: str, parent: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield path, (command, context)
    for name, member in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(member, f"{path} {name}", context)


def _page(path: str, command: Any, context: Any) -> str:
    description, examples = _parts(command.help or "")
    first = description.partition("\n")[0].partition(". ")[0].rstrip(".")
    lines = [f'.TH "{_dash(path).upper()}" "1" "" "rollout {__version__}" "rollout"']
    lines += [".SH NAME", f"{_text(_dash(path))} \\- {_text(first)}"]
    lines += [
        ".SH SYNOPSIS",
        f".B {_text(path)}",
        _text(" ".join(command.collect_usage_pieces(context))),
    ]
    lines += [".SH DESCRIPTION", *_paragraphs(description)]
    for title, records in _sections(command, context).items():
        lines += [f".SH {title.upper()}", *_terms(records)]
    if members := getattr(command, "commands", {}):
        terms = [
            (f"{_dash(f'{path} {name}')}(1)", member.get_short_help_str(_LINE))
            for name, member in members.items()
        ]
        lines += [".SH COMMANDS", *_terms(terms)]
    if examples:
        lines += [".SH EXAMPLES", *_verbatim(examples)]
    if command.epilog:
        lines += [".SH NOTES", *_verbatim(command.epilog.replace(_MARK, "").strip("\n"))]
    if parent := path.rpartition(" ")[0]:
        lines += [".SH SEE ALSO", f"{_text(_dash(parent))}(1)"]
    return "\n".join((*lines, ""))


def _sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    if hasattr(command, "sections"):
        sections: dict[str, list[tuple[str, str]]] = command.sections(context)
        return sections
    records = [item.get_help_record(context) for item in command.get_params(context)]
    return {"Options": [record for record in records if record]}


def _parts(text: str) -> tuple[str, str]:
    """Return a help text's description and its examples."""
    description, _, examples = text.replace(_MARK, "").partition(_EXAMPLES)
    return description.strip(), examples.strip("\n")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _terms(records: Any) -> Iterator[str]:
    for term, meaning in records:
        yield from (".TP", f".B {_text(term)}", _text(meaning))


def _verbatim(text: str) -> Iterator[str]:
    yield from (".nf", *(_text(line) for line in text.splitlines()), ".fi")


def _text(line: str) -> str:
    """Escape what troff would take for a macro or a hyphen."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _dash(path: str) -> str:
    return path.replace(" ", "-")
