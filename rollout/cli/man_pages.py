"""Man pages, made of what the commands' own help is made of."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from rollout import __version__

_EXAMPLES = "Examples:"
_MARK = "\b"
# longer than any line that describes a command
_LINE = 200


def man_pages(program: Any, name: str) -> Mapping[str, str]:
    """Return the page of each command by its file's name: rollout.1, rollout-plan.1, rollout-lab-up.1."""
    commands = dict(_commands(program, name, None))
    return {f"{_dashed(path)}.1": _page(path, command, context) for path, (command, context) in commands.items()}


def _commands(command: Any, path: str, parent: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    context = typer.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield path, (command, context)
    for name, member in sorted(getattr(command, "commands", {}).items()):
        yield from _commands(member, f"{path} {name}", context)


def _page(path: str, command: Any, context: Any) -> str:
    description, examples = _parts(command.help or "")
    first = description.partition("\n")[0].partition(". ")[0].rstrip(".")
    lines = [f'.TH "{_dashed(path).upper()}" "1" "" "rollout {__version__}" "rollout"']
    lines += [".SH NAME", f"{_text(_dashed(path))} \\- {_text(first)}"]
    lines += [".SH SYNOPSIS", f".B {_text(path)}", _text(" ".join(command.collect_usage_pieces(context)))]
    lines += [".SH DESCRIPTION", *_paragraphs(description)]
    for title, records in _sections(command, context).items():
        lines += [f".SH {title.upper()}", *_terms(records)]
    if members := getattr(command, "commands", {}):
        terms = [
            (f"{_dashed(f'{path} {name}')}(1)", member.get_short_help_str(_LINE)) for name, member in members.items()
        ]
        lines += [".SH COMMANDS", *_terms(terms)]
    if examples:
        lines += [".SH EXAMPLES", *_verbatim(examples)]
    if command.epilog:
        lines += [".SH NOTES", *_verbatim(command.epilog.replace(_MARK, "").strip("\n"))]
    if parent := path.rpartition(" ")[0]:
        lines += [".SH SEE ALSO", f"{_text(_dashed(parent))}(1)"]
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
    """Return text that a formatter takes for nothing else."""
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _dashed(path: str) -> str:
    return path.replace(" ", "-")
