"""From words to fields: parameters, command substitution, field splitting.

The environment is asked through a Protocol, so that this module needs no interpreter.
"""

import fnmatch
from typing import Final, Protocol

from rollout.lab.hosts.shell.tree import CommandList, Literal, Parameter, Part, Substitution, Word

_BLANKS: Final = " \t\n"


class UnboundVariableError(Exception):
    """`set -u` is on and the variable has no value."""


class Environment(Protocol):
    """What expansion asks the shell for."""

    def value(self, name: str) -> str | None:
        """A parameter's value, None where it is unset."""

    def positional(self) -> tuple[str, ...]:
        """The positional parameters."""

    def assign(self, name: str, value: str) -> None:
        """Set a variable, for `${name:=word}`."""

    def unset_is_error(self) -> bool:
        """Whether `set -u` is on."""

    async def substitute(self, body: CommandList) -> str:
        """The output of a command list, without trailing newlines."""


async def fields(environment: Environment, words: tuple[Word, ...]) -> list[str]:
    """All words expanded and split into fields."""
    result: list[str] = []
    for word in words:
        result.extend(await _word_fields(environment, word))
    return result


async def text(environment: Environment, word: Word) -> str:
    """One word expanded without splitting, as in an assignment."""
    return "".join([await _part_text(environment, part) for part in word.parts])


async def pattern(environment: Environment, word: Word) -> str:
    """One word as a pattern for `fnmatch`: what was quoted matches itself."""
    pieces = [(await _part_text(environment, part), part.quoted) for part in word.parts]
    return "".join(_literal_pattern(piece) if quoted else piece for piece, quoted in pieces)


def _literal_pattern(piece: str) -> str:
    return "".join(f"[{character}]" if character in "*?[" else character for character in piece)


async def _word_fields(environment: Environment, word: Word) -> list[str]:
    """Pieces of text run together into one field until a separator (None) ends it."""
    done: list[str] = []
    current: str | None = None
    for part in word.parts:
        for piece in await _pieces(environment, part):
            if piece is not None:
                current = (current or "") + piece
            elif current is not None:
                done.append(current)
                current = None
    return done if current is None else [*done, current]


async def _pieces(environment: Environment, part: Part) -> list[str | None]:
    if isinstance(part, Parameter) and part.quoted and part.name == "@":
        return _separated(list(environment.positional()))
    value = await _part_text(environment, part)
    if part.quoted or isinstance(part, Literal):
        return [value]
    blank_start = [None] if value.startswith(tuple(_BLANKS)) else []
    blank_end = [None] if value.endswith(tuple(_BLANKS)) else []
    return [*blank_start, *_separated(value.split()), *blank_end]


def _separated(texts: list[str]) -> list[str | None]:
    pieces: list[str | None] = []
    for piece in texts:
        pieces.extend((piece, None))
    return pieces[:-1]


async def _part_text(environment: Environment, part: Part) -> str:
    match part:
        case Literal():
            return part.text
        case Substitution():
            return await environment.substitute(part.body)
        case Parameter():
            return await _parameter(environment, part)


async def _parameter(environment: Environment, part: Parameter) -> str:
    value = environment.value(part.name)
    if part.argument is None:
        if value is None and environment.unset_is_error():
            raise UnboundVariableError(part.name)
        return value or ""
    if part.operator in ("#", "##", "%", "%%"):
        return _trimmed(value or "", part.operator, await pattern(environment, part.argument))
    present = bool(value) if part.operator.startswith(":") else value is not None
    if part.operator.endswith("+"):
        return await text(environment, part.argument) if present else ""
    if present:
        return value or ""
    default = await text(environment, part.argument)
    if part.operator.endswith("="):
        environment.assign(part.name, default)
    return default


def _trimmed(value: str, operator: str, wanted: str) -> str:
    """`${value#pattern}` and its kin: the shortest, or doubled the longest, matching prefix or suffix removed."""
    cuts = list(range(len(value) + 1))
    prefix = operator.startswith("#")
    longest = len(operator) > 1
    for cut in cuts if prefix != longest else reversed(cuts):
        if fnmatch.fnmatchcase(value[:cut] if prefix else value[cut:], wanted):
            return value[cut:] if prefix else value[:cut]
    return value
