"""An OpenSSH client configuration as text that paramiko can read.

paramiko ignores Include, runs the commands of `Match exec`, and gives up on the whole file where a Match asks for
something that it does not know. Here the files that are included before the first block take their place, and what
stands under a condition that cannot be decided is marked, to be refused where it applies and matters.
"""

import re
import shlex
from collections.abc import Container, Iterator
from pathlib import Path

from rollout.errors import InputError

# Stands for a keyword that applies under a condition that cannot be decided here.
UNDECIDED = "rolloutundecided"

_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_DECIDED = ("host", "originalhost", "user", "localuser")
_ALONE = ("all", "canonical", "final")
_MOST_NESTED = 16


def read_lines(path: Path, relevant: Container[str]) -> Iterator[str]:
    """The file's lines, with those that it includes; `relevant` are the keywords that matter under a condition."""
    yield from _lines(path, relevant, 0)


def _lines(path: Path, relevant: Container[str], depth: int) -> Iterator[str]:
    if depth > _MOST_NESTED:
        raise InputError(f"{path}: its files include each other")
    in_block, undecided = False, False
    for line in path.read_text(encoding="utf-8").splitlines():
        keyword, value = _parsed(line)
        if keyword in ("host", "match"):
            kept, undecided = _match(value, path) if keyword == "match" else (line, False)
            in_block = True
            yield kept
        elif keyword == "include" and not in_block:
            yield from _include(value, relevant, depth)
        elif keyword == "include" and not list(_included(value)):
            continue
        elif not undecided:
            yield line
        elif keyword in relevant:
            yield f"{UNDECIDED} {keyword}"


def _include(patterns: str, relevant: Container[str], depth: int) -> Iterator[str]:
    for file in _included(patterns):
        yield from _lines(file, relevant, depth + 1)
        # What follows is not part of the included file's last block.
        yield "Host *"


def _parsed(line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    return (found[1].lower(), found[2]) if found else ("", "")


def _match(criteria: str, path: Path) -> tuple[str, bool]:
    """The line with the criteria that can be decided, and whether there are others."""
    try:
        words = shlex.split(criteria)
    except ValueError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: Match {criteria}: {error}") from error
    kept, undecided = list[str](), False
    while words:
        criterion = words.pop(0)
        name = criterion.lower().removeprefix("!")
        if name in _ALONE:
            kept.append(criterion)
            continue
        value = words.pop(0) if words else ""
        if name in _DECIDED:
            kept += [criterion, shlex.quote(value)]
        else:
            undecided = True
    return f"Match {' '.join(kept) or 'all'}", undecided


def _included(patterns: str) -> Iterator[Path]:
    """Files of an Include line: relative ones are in ~/.ssh, and a pattern without matches is none."""
    for pattern in patterns.split():
        absolute = Path("~/.ssh").expanduser() / Path(pattern.strip('"')).expanduser()
        yield from sorted(Path("/").glob(str(absolute).lstrip("/")))
