"""The words of a shell script, and what becomes of them: parameters, substitutions, field splitting."""

import fnmatch
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

_BLANKS: Final = (" ", "\t", "\n")


class UnboundVariableError(Exception):
    """`set -u` is on and the variable has no value."""


class Environment(Protocol):
    """What expansion asks the shell for."""

    arguments: tuple[str, ...]

    @property
    def strict(self) -> bool:
        """Whether an unset variable is an error."""

    def value(self, name: str) -> str | None:
        """A parameter's value, None where it is unset."""

    def assign(self, name: str, value: str) -> None:
        """Set a variable, for `${name:=word}`."""

    def paths(self, pattern: str) -> list[str]:
        """The files that an absolute pattern matches, in order."""

    async def output(self, commands: Any) -> str:
        """What commands print in a subshell, without trailing newlines."""


@dataclass(frozen=True, slots=True)
class Part:
    """A run of a word: its value, and whether that is quoted, is literal, is `$@`; `fixed` where it never changes."""

    value: "Callable[[Environment], Awaitable[str]]"
    quoted: bool
    literal: bool = False
    all_arguments: bool = False
    fixed: str | None = None


Word: TypeAlias = "tuple[Part, ...]"


def literal(text: str, *, quoted: bool) -> Part:
    """Text that stands for itself."""

    async def value(_environment: Environment) -> str:
        return text

    return Part(value, quoted, literal=True, fixed=text if quoted or "*" not in text else None)


def parameter(name: str, operator: str, argument: Word, *, quoted: bool) -> Part:
    """`$name`, or `${name OPERATOR argument}`."""

    async def value(environment: Environment) -> str:
        now = environment.value(name)
        if not operator:
            if now is None and environment.strict:
                raise UnboundVariableError(name)
            return now or ""
        if operator[0] in "#%":
            return _trimmed(now or "", operator, await pattern(environment, argument))
        present = bool(now) if operator.startswith(":") else now is not None
        if present != operator.endswith("+"):
            return now or ""
        default = await text(environment, argument)
        if operator.endswith("="):
            environment.assign(name, default)
        return default

    return Part(value, quoted, all_arguments=name == "@" and quoted and not operator)


async def text(environment: Environment, word: Word) -> str:
    """One word expanded without splitting, as in an assignment."""
    return "".join([await part.value(environment) for part in word])


async def pattern(environment: Environment, word: Word) -> str:
    """One word as a pattern for `fnmatch`: what was quoted matches itself."""
    pieces = [(await part.value(environment), part.quoted) for part in word]
    return "".join(
        "".join(f"[{c}]" if c in "*?[" else c for c in piece) if quoted else piece for piece, quoted in pieces
    )


async def fields(environment: Environment, words: tuple[Word, ...]) -> list[str]:
    """All words expanded, split into fields, and made paths where they match any."""
    done = list[str]()
    for word in words:
        # Most words stand for themselves.
        if len(word) == 1 and (fixed := word[0].fixed) is not None:
            done.append(fixed)
        else:
            done += await _paths(environment, word) or await _split(environment, word)
    return done


async def _paths(environment: Environment, word: Word) -> list[str]:
    """What a word with an unquoted `*` matches; nothing where it matches nothing, and stands for itself."""
    literals = [await part.value(environment) for part in word if part.literal and not part.quoted]
    if not any("*" in text for text in literals):
        return []
    return environment.paths(await pattern(environment, word))


async def _split(environment: Environment, word: Word) -> list[str]:
    """Pieces run together into one field until a separator (None) ends it."""
    done, current = list[str](), None
    for part in word:
        for piece in await _pieces(environment, part):
            if piece is not None:
                current = (current or "") + piece
            elif current is not None:
                done.append(current)
                current = None
    return done if current is None else [*done, current]


async def _pieces(environment: Environment, part: Part) -> list[str | None]:
    if part.all_arguments:
        return _separated(list(environment.arguments))
    value = await part.value(environment)
    if part.quoted or part.literal:
        return [value]
    before, after = ([None] if ends(_BLANKS) else [] for ends in (value.startswith, value.endswith))
    return [*before, *_separated(value.split()), *after]


def _separated(texts: list[str]) -> list[str | None]:
    return [piece for text in texts for piece in (text, None)][:-1]


def _trimmed(value: str, operator: str, wanted: str) -> str:
    """`${value#pattern}` and its kin: the shortest, or doubled the longest, matching prefix or suffix removed."""
    prefix, longest = operator[0] == "#", len(operator) > 1
    cuts = range(len(value) + 1)
    for cut in cuts if prefix != longest else reversed(cuts):
        if fnmatch.fnmatchcase(value[:cut] if prefix else value[cut:], wanted):
            return value[cut:] if prefix else value[:cut]
    return value
