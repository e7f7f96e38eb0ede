"""The syntax tree of the shell language that the hosts understand.

A subset of POSIX sh, large enough for what operators' tools send: lists, pipelines, conditions, loops,
functions, groups, redirections, quoting, parameters and command substitution. Left out, and refused as syntax
errors rather than misread: here-documents and arithmetic.
"""

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """Text as written; only unquoted text is subject to field splitting and patterns."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Parameter:
    """`$name` or `${name<operator>word}`; the operator is empty in the plain form."""

    name: str
    quoted: bool
    operator: str = ""
    argument: "Word | None" = None


@dataclass(frozen=True, slots=True)
class Substitution:
    """`$(…)` or backquotes."""

    body: "CommandList"
    quoted: bool


Part: TypeAlias = Literal | Parameter | Substitution


@dataclass(frozen=True, slots=True)
class Word:
    """One word before expansion."""

    parts: tuple[Part, ...]

    @property
    def plain(self) -> str | None:
        """The text of a word without any quoting or expansion, else None; only such words are keywords."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Literal) and not self.parts[0].quoted:
            return self.parts[0].text
        return None


@dataclass(frozen=True, slots=True)
class Redirect:
    """`descriptor operator target`; the operators are `>`, `>>`, `<`, `>&` and `&>` (both outputs)."""

    descriptor: int
    operator: str
    target: Word


@dataclass(frozen=True, slots=True)
class Simple:
    """Assignments, words, redirections."""

    assignments: tuple[tuple[str, Word], ...]
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`, the status negated by a leading `!`."""

    commands: tuple["Command", ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class AndOr:
    """Pipelines joined by `&&` and `||`, in the background with a trailing `&`."""

    first: Pipeline
    rest: tuple[tuple[str, Pipeline], ...] = ()
    background: bool = False


@dataclass(frozen=True, slots=True)
class CommandList:
    """Commands one after the other."""

    items: tuple[AndOr, ...]


@dataclass(frozen=True, slots=True)
class If:
    """`if … then … elif … else … fi`."""

    branches: tuple[tuple[CommandList, CommandList], ...]
    otherwise: CommandList | None


@dataclass(frozen=True, slots=True)
class Loop:
    """`while` or, negated, `until`."""

    condition: CommandList
    body: CommandList
    until: bool


@dataclass(frozen=True, slots=True)
class For:
    """`for name in words`; without `in` it goes over the positional parameters."""

    name: str
    words: tuple[Word, ...] | None
    body: CommandList


@dataclass(frozen=True, slots=True)
class Case:
    """`case word in pattern|pattern) … ;; esac`."""

    subject: Word
    branches: tuple[tuple[tuple[Word, ...], CommandList], ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`{ …; }`, or `( … )` in an environment of its own."""

    body: CommandList
    subshell: bool


@dataclass(frozen=True, slots=True)
class Function:
    """`name() body`."""

    name: str
    body: "Command"


Compound: TypeAlias = If | Loop | For | Case | Group


@dataclass(frozen=True, slots=True)
class Redirected:
    """A compound command with redirections of its own."""

    command: Compound
    redirects: tuple[Redirect, ...]


Command: TypeAlias = Simple | Redirected | Function
