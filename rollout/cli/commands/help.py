import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from rollout import __version__
from rollout.cli.options import argument, option
from rollout.cli.program import PROGRAM
from rollout.cli.terminal import say, show
from rollout.errors import UsageError


def _complete_command(context: typer.Context, incomplete: str) -> list[str]:
    commands = context.find_root().command.commands  # type: ignore[attr-defined]
    return [name for name in commands if name.startswith(incomplete)]


_EXAMPLES = "Examples:"
# Keeps typer from joining a paragraph's lines.
_KEEP_LINES = "\b"
# Keeps typer from shortening descriptions.
_LONGEST_DESCRIPTION = 200
_PAGES = "Write a man page for every command to this directory"


def help(  # noqa: A001 - the command's name
    invocation: typer.Context,
    command: list[str] | None = argument(
        None, "Command to show help for.", "COMMAND", _complete_command
    ),
    man_pages: Path | None = option(None, _PAGES, "DIR", "--man-pages"),
) -> None:
    """Show help for a command, as with --help, or write man pages.

    \b
    Examples:
      rollout help plan
      rollout help --man-pages ~/.local/share/man/man1 && man rollout-plan
    """
    root = invocation.find_root()
    if man_pages is not None:
        _write_man_pages(man_pages, root.command)
        return
    target: Any = root.command
    parent: Any = root
    for word in command or ():
        has_subcommands = hasattr(target, "commands")
        if not has_subcommands:
            raise UsageError(f"{parent.command_path} has no subcommands")
        _, target, _ = target.resolve_command(parent, [word])
        parent = typer.Context(target, info_name=word, parent=parent)
    show(target.get_help(parent))


def _write_man_pages(folder: Path, program: Any) -> None:
    from rollout.adapters.local_files import write_whole

    folder.mkdir(parents=True, exist_ok=True)
    pages = man_pages_of(program, PROGRAM)
    for name, text in pages.items():
        write_whole(folder / name, text.encode())
    say(f"{len(pages)} man pages are in {folder}. Read one: man -l {folder / f'{PROGRAM}.1'}")


def man_pages_of(program: Any, name: str) -> Mapping[str, str]:
    return dict(_man_pages_below(program, name, parent=None))


def _man_pages_below(command: Any, path: str, parent: Any) -> Iterator[tuple[str, str]]:
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield f"{_page_name(path)}.1", _man_page(path, command, context)
    for name, subcommand in sorted(getattr(command, "commands", {}).items()):
        yield from _man_pages_below(subcommand, f"{path} {name}", context)


def _man_page(path: str, command: Any, context: Any) -> str:
    help_text = (command.help or "").replace(_KEEP_LINES, "")
    description, _, examples = help_text.partition(_EXAMPLES)
    description = description.strip()
    first_line, _, _ = description.partition("\n")
    first_sentence = first_line.partition(". ")[0].rstrip(".")
    lines = [f'.TH "{_page_name(path).upper()}" "1" "" "rollout {__version__}" "rollout"']
    lines += [".SH NAME", f"{_escape(_page_name(path))} \\- {_escape(first_sentence)}"]
    lines += [
        ".SH SYNOPSIS",
        f".B {_escape(path)}",
        _escape(" ".join(command.collect_usage_pieces(context))),
    ]
    lines += [".SH DESCRIPTION", *_paragraphs(description)]
    for title, records in _parameter_sections(command, context).items():
        lines += [f".SH {title.upper()}", *_terms(records)]
    subcommands = getattr(command, "commands", {})
    if subcommands:
        lines.append(".SH COMMANDS")
        for name, subcommand in subcommands.items():
            term = f"{_page_name(f'{path} {name}')}(1)"
            lines += _terms([(term, subcommand.get_short_help_str(_LONGEST_DESCRIPTION))])
    if examples:
        lines += [".SH EXAMPLES", *_verbatim(examples.strip("\n"))]
    if command.epilog:
        lines += [".SH NOTES", *_verbatim(command.epilog.replace(_KEEP_LINES, "").strip("\n"))]
    parent = path.rpartition(" ")[0]
    if parent:
        lines += [".SH SEE ALSO", f"{_escape(_page_name(parent))}(1)"]
    return "\n".join((*lines, ""))


def _parameter_sections(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    if hasattr(command, "sections"):
        sections: dict[str, list[tuple[str, str]]] = command.sections(context)
        return sections
    records = [item.get_help_record(context) for item in command.get_params(context)]
    return {"Options": [record for record in records if record]}


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text):
        yield from (".PP", _escape(" ".join(paragraph.split())))


def _terms(records: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, meaning in records:
        yield from (".TP", f".B {_escape(term)}", _escape(meaning))


def _verbatim(text: str) -> Iterator[str]:
    yield from (".nf", *(_escape(line) for line in text.splitlines()), ".fi")


def _escape(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _page_name(path: str) -> str:
    return path.replace(" ", "-")
