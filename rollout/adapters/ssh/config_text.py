"""OpenSSH client configurations as lines: which keywords there are, and which names they speak of.

What a configuration means for a host is not decided here: OpenSSH's own client is asked for that.
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rollout.adapters.ssh.patterns import is_match
from rollout.errors import InputError

_LINE = re.compile(r'\s*"?(\w+)"?(?:\s*=\s*|\s+)(.*?)\s*')
_MATCHED = re.compile(r"""(?<![!\w])(?:original)?host[\s=]+["']?([^\s"']+)""", re.IGNORECASE)
_MOST_NESTED = 16
# Where the client looks for files that an Include names without a folder; elsewhere for those of the system's file.
_FOLDER = Path("~/.ssh")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its keyword in lower case, empty where there is none to be seen, and what follows it."""

    keyword: str
    value: str
    place: str

    @property
    def words(self) -> list[str]:
        """The value's words; `InputError` where a quote is not closed."""
        try:
            return shlex.split(self.value, comments=True)
        except ValueError as error:
            why = f"{self.place}: a quote is not closed: {self.value}"
            raise InputError(why, hint="ssh refuses this configuration as well.") from error


def read_lines(files: Iterable[Path], system: Collection[Path] = ()) -> tuple[Line, ...]:
    """The lines of these files and of those that they include, without empty ones and comments.

    `system` are those of them that are everybody's.

    An Include before the first block is replaced by what it includes; one within a block stays, in front of it.
    Raises `InputError` where a file cannot be read.
    """
    lines = list[Line]()
    for file in files:
        folder = file.parent if file in system else _FOLDER.expanduser()
        lines += [*_lines(file, folder, 0), Line("host", "*", str(file))]
    return tuple(lines)


def _lines(file: Path, folder: Path, depth: int) -> Iterator[Line]:
    if depth > _MOST_NESTED:
        raise InputError(f"{file}: its files include each other")
    in_block = False
    for number, text in enumerate(_text(file).splitlines(), 1):
        line = _line(text, f"{file}:{number}")
        if line is None:
            continue
        in_block = in_block or line.keyword in ("host", "match")
        if line.keyword == "include":
            yield from _included(line, folder, depth, in_block=in_block)
        else:
            yield line


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(
            f"cannot read {file}: {error.strerror}", hint="Name another file with --ssh-config."
        ) from error


def _line(text: str, place: str) -> Line | None:
    if not text.strip() or text.lstrip().startswith("#"):
        return None
    parts = _LINE.fullmatch(text)
    return Line(parts[1].lower(), parts[2], place) if parts else Line("", text, place)


def _included(line: Line, folder: Path, depth: int, *, in_block: bool) -> Iterator[Line]:
    files = [file for pattern in line.words for file in _files(pattern, folder)]
    if any(mark in line.value for mark in "%$"):
        # Only the client can tell which files those are.
        yield replace(line, keyword="")
    elif in_block and files:
        yield line
    for file in files:
        yield from _lines(file, folder, depth + 1)
        if not in_block:
            # What follows is not part of the included file's last block.
            yield Line("host", "*", line.place)


def _files(pattern: str, folder: Path) -> list[Path]:
    return sorted(Path("/").glob(str(folder / Path(pattern).expanduser()).lstrip("/")))


def names(lines: Iterable[Line], name: str) -> bool:
    """Whether a Host or Match line speaks of this name, rather than of all."""
    return any(_is_about(patterns, name) for line in lines for patterns in _patterns(line))


def _is_about(patterns: Sequence[str], name: str) -> bool:
    return is_match(patterns, name) and is_match([word for word in patterns if word.strip("*?.")], name)


def _patterns(line: Line) -> Iterator[Sequence[str]]:
    if line.keyword == "host":
        yield line.words
    elif line.keyword == "match":
        yield from (names.split(",") for names in _MATCHED.findall(line.value))
