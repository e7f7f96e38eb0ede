"""Programs that print, read and filter text: the few, and the few options, that scripts for hosts use."""

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Process

_USAGE: Final = 2
_ESCAPES: Final = re.compile(r"\\(n|t|r|a|b|f|v|\\|0[0-7]{0,3}|[0-7]{1,3})")
_NAMED_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\"}
_RANGE: Final = re.compile(r"(.)-(.)")
_CONVERSION: Final = re.compile(r"%(-?\d*(?:\.\d+)?)([sdiuxcbq%])")


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        name = match[1]
        return _NAMED_ESCAPES[name] if name in _NAMED_ESCAPES else chr(int(name, 8))

    return _ESCAPES.sub(character, text)


async def echo(process: Process) -> int:
    """`echo [-n] [-e] words`."""
    options, words = "", list(process.arguments)
    while words and re.fullmatch(r"-[neE]+", words[0]):
        options += words.pop(0)
    text = " ".join(words)
    process.streams.out.write((_unescape(text) if "e" in options else text) + ("" if "n" in options else "\n"))
    return 0


async def printf(process: Process) -> int:
    """`printf format words`: the format is used again while words are left."""
    words = list(process.arguments[process.arguments[:1] == ("--",) :])
    if not words:
        process.complain("printf: usage: printf [-v var] format [arguments]")
        return _USAGE
    form, values = _unescape(words[0]), iter(words[1:])
    takes = any(match[2] != "%" for match in _CONVERSION.finditer(form))
    for first in itertools.chain([next(values, "")], values) if takes else [""]:
        convert = partial(_converted, itertools.chain([first], values))
        process.streams.out.write(_CONVERSION.sub(convert, form))
    return 0


def _converted(values: Iterator[str], match: re.Match[str]) -> str:
    if match[2] == "%":
        return "%"
    value = next(values, "")
    if match[2] in "diux":
        return f"%{match[1]}{match[2]}" % int(value or 0)
    return f"%{match[1]}s" % (_unescape(value) if match[2] == "b" else value)


async def cat(process: Process) -> int:
    """`cat [files]`."""
    names = [name for name in process.arguments if not (name.startswith("-") and len(name) > 1)] or ["-"]
    status = 0
    for name in names:
        text = await _text_of(process, name)
        if text is None:
            status = 1
        else:
            process.streams.out.write(text)
    return status


async def _text_of(process: Process, name: str) -> str | None:
    """A file's text, `-` for standard input; None, and a complaint, where it cannot be read."""
    program = process.argv[0].rpartition("/")[2]
    if name == "-":
        return await process.streams.stdin.rest()
    if name == "/dev/null":
        return ""
    text = files.read(process.machine, name)
    if text is None:
        directory = files.is_directory(process.machine, name)
        process.complain(f"{program}: {name}: {'Is a directory' if directory else 'No such file or directory'}")
    return text


async def grep(process: Process) -> int:
    """`grep [-EFqivcohs] [-m N] [-e] pattern [files]`."""
    options, words = _options(process.arguments, valued=("-m", "-e"))
    pattern = options.get("-e") or (words.pop(0) if words else "")
    texts = [await _text_of(process, name) for name in words or ["-"]]
    regex = _grep_regex(pattern, options)
    lines = [line for text in texts if text is not None for line in text.splitlines()]
    matches = [line for line in lines if (regex.search(line) is None) == ("-v" in options)]
    matches = matches[: int(options.get("-m") or len(matches))]
    if "-c" in options:
        process.print(str(len(matches)))
    elif "-q" not in options:
        for line in matches:
            for text in (match[0] for match in regex.finditer(line)) if "-o" in options else (line,):
                process.print(text)
    if matches:
        return 0
    return _USAGE if None in texts else 1


def _grep_regex(pattern: str, options: dict[str, str]) -> re.Pattern[str]:
    if "-F" in options:
        pattern = re.escape(pattern)
    elif "-E" not in options:
        pattern = re.sub(r"\\?[(){}|+?]", _swapped, pattern)
    return re.compile(pattern, re.IGNORECASE if "-i" in options else 0)


def _swapped(match: re.Match[str]) -> str:
    """Basic expressions have these characters plain unless escaped, the other way round than Python's."""
    return match[0][1:] if match[0].startswith("\\") else f"\\{match[0]}"


async def head(process: Process) -> int:
    """`head [-n N] [-c N] [files]`."""
    count, text = await _counted(process)
    process.streams.out.write("".join(text[:count]))
    return 0


async def tail(process: Process) -> int:
    """`tail [-n N] [-c N] [files]`."""
    count, text = await _counted(process)
    process.streams.out.write("".join(text[-count:] if count else []))
    return 0


async def _counted(process: Process) -> tuple[int, Sequence[str]]:
    """How many lines are wanted, or characters where the option says so, and all there are."""
    arguments = tuple(f"-n{word[1:]}" if re.fullmatch(r"-\d+", word) else word for word in process.arguments)
    options, words = _options(arguments, valued=("-n", "-c"))
    texts = [await _text_of(process, name) for name in words or ["-"]]
    text = "".join(text for text in texts if text is not None)
    if "-c" in options:
        return int(options["-c"]), text
    return int(options.get("-n", "10")), text.splitlines(keepends=True)


async def wc(process: Process) -> int:
    """`wc -l|-w|-c` of standard input."""
    text = await process.streams.stdin.rest()
    counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text)}
    wanted = [option for option in process.arguments if option in counts] or list(counts)
    process.print(" ".join(str(counts[option]) for option in wanted))
    return 0


async def tr(process: Process) -> int:
    """`tr a b` and `tr -d a`."""
    text, words = await process.streams.stdin.rest(), list(process.arguments)
    delete = "-d" in words
    sets = [_RANGE.sub(_characters, _unescape(word)) for word in words if word != "-d"]
    if len(sets) != (1 if delete else 2):
        process.complain("tr: missing operand")
        return 1
    old, new = sets[0], "" if delete else sets[1].ljust(len(sets[0]), sets[1][-1:])[: len(sets[0])]
    process.streams.out.write(text.translate(str.maketrans("", "", old) if delete else str.maketrans(old, new)))
    return 0


def _characters(match: re.Match[str]) -> str:
    return "".join(chr(code) for code in range(ord(match[1]), ord(match[2]) + 1))


async def cut(process: Process) -> int:
    """`cut -d X -f N` of standard input or files."""
    options, words = _options(process.arguments, valued=("-d", "-f"))
    separator, field = options.get("-d", "\t"), int(options.get("-f", "1"))
    for name in words or ["-"]:
        for line in (await _text_of(process, name) or "").splitlines():
            pieces = line.split(separator)
            process.print(pieces[field - 1] if len(pieces) >= field and len(pieces) > 1 else line)
    return 0


async def tee(process: Process) -> int:
    """`tee [-a] files`."""
    text, status = await process.streams.stdin.rest(), 0
    process.streams.out.write(text)
    for name in (word for word in process.arguments if word != "-a"):
        if not files.may_write(process.user, name):
            process.complain(f"tee: {name}: Permission denied")
            status = 1
            continue
        before = files.read(process.machine, name) if "-a" in process.arguments else ""
        files.write(process.machine, name, (before or "") + text)
    return status


def _options(arguments: tuple[str, ...], *, valued: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Single-letter options, which may be bundled, and the remaining words."""
    options: dict[str, str] = {}
    words: list[str] = []
    pending = list(arguments)
    while pending:
        word = pending.pop(0)
        if word == "--":
            return options, [*words, *pending]
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        while len(word) > 1:
            option, word = f"-{word[1]}", f"-{word[2:]}"
            if option in valued:
                options[option] = word[1:] or (pending.pop(0) if pending else "")
                break
            options[option] = ""
    return options, words
