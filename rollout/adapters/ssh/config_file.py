"""An OpenSSH client configuration as text that paramiko can read.

paramiko ignores Include, takes comments at the ends of lines for values, runs the commands of `Match exec`, and gives
up on the whole file where a Match asks for something that it does not know. Here the files that are included before
the first block take their place, and what stands under a condition that cannot be decided is marked, to be refused
where it applies and matters.
"""

import re
import shlex
from collections.abc import Container, Iterator
from pathlib import Path

from rollout.adapters.ssh.config_values import without_comment, words
from rollout.errors import InputError

# Stands for a keyword that applies under a condition that cannot be decided here.
UNDECIDED = "rolloutundecided"
# Stands for a keyword that paramiko would look names up for.
CANONICAL = "rolloutcanonicalize"
# In front of the file of a certificate: paramiko keeps one CertificateFile, and every IdentityFile.
CERTIFICATE = "rollout-certificate:"

_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_DECIDED = ("host", "originalhost", "user", "localuser")
_ALONE = ("all", "canonical", "final")
_MOST_NESTED = 16
# Whose value is a command, in which a # is the shell's.
_COMMANDS = ("proxycommand", "knownhostscommand", "localcommand", "remotecommand")
_QUOTE = '"'
_LISTS = ("userknownhostsfile", "globalknownhostsfile")


def read_lines(path: Path, relevant: Container[str]) -> Iterator[str]:
    """The file's lines, with those that it includes; `relevant` are the keywords that matter under a condition."""
    yield from _lines(path, relevant, 0)


def _lines(path: Path, relevant: Container[str], depth: int) -> Iterator[str]:
    if depth > _MOST_NESTED:
        raise InputError(f"{path}: its files include each other")
    in_block, undecided = False, False
    for written in path.read_text(encoding="utf-8").splitlines():
        keyword, value, line = _read(written, path)
        if keyword in ("host", "match"):
            kept, undecided = _match(value, path) if keyword == "match" else (line, False)
            in_block = True
            yield kept
        elif keyword == "include" and not in_block:
            yield from _include(_words(value, path), relevant, depth)
        elif keyword == "include" and not list(_included(_words(value, path))):
            continue
        elif not undecided:
            yield line
        elif keyword in relevant:
            yield f"{UNDECIDED} {keyword}"


def _read(line: str, path: Path) -> tuple[str, str, str]:
    """Keyword, value, and the line as paramiko is to read it."""
    keyword, value = _parsed(line)
    if keyword in _COMMANDS:
        return keyword, value, line
    line = without_comment(line)
    keyword, value = _parsed(line)
    if keyword == "certificatefile" and value.strip(_QUOTE) != "none":
        line = f'IdentityFile "{CERTIFICATE}{value.strip(_QUOTE)}"'
    elif keyword == "canonicalizehostname":
        line = f"{CANONICAL} {value}"
    elif keyword in _LISTS:
        line = f"{keyword} {shlex.join(_words(value, path))}"
    return keyword, value, line


def _words(text: str, path: Path) -> list[str]:
    try:
        return words(text)
    except ValueError as error:
        raise InputError(f"{path} is not an OpenSSH client configuration: {text}: {error}") from error


def _include(patterns: list[str], relevant: Container[str], depth: int) -> Iterator[str]:
    for file in _included(patterns):
        yield from _lines(file, relevant, depth + 1)
        # What follows is not part of the included file's last block.
        yield "Host *"


def _parsed(line: str) -> tuple[str, str]:
    found = _LINE.fullmatch(line)
    return (found[1].lower(), found[2]) if found else ("", "")


def _match(criteria: str, path: Path) -> tuple[str, bool]:
    """The line with the criteria that can be decided, and whether there are others."""
    left = _words(criteria, path)
    kept, undecided = list[str](), False
    while left:
        criterion, equals, value = left.pop(0).partition("=")
        name = criterion.lower().removeprefix("!")
        if name in _ALONE:
            kept.append(criterion)
            continue
        value = value if equals or not left else left.pop(0)
        if name in _DECIDED:
            kept += [criterion, shlex.quote(value)]
        else:
            undecided = True
    return f"Match {' '.join(kept) or 'all'}", undecided


def _included(patterns: list[str]) -> Iterator[Path]:
    """Files of an Include line: relative ones are in ~/.ssh, and a pattern without matches is none."""
    for pattern in patterns:
        absolute = Path("~/.ssh").expanduser() / Path(pattern).expanduser()
        yield from sorted(Path("/").glob(str(absolute).lstrip("/")))
