"""From characters to tokens of the shell language.

The lexer hands out one token at a time and works on a position in the text, because a command substitution is
parsed by the parser and ends where the parser says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rollout.lab.hosts.shell.tree import CommandList, Literal, Parameter, Part, Substitution, Word

_OPERATORS: Final = ("&&", "||", ";;", ";", "&", "|", "(", ")")
_REDIRECTS: Final = ("&>", ">>", ">&", ">", "<")
_BREAKS: Final = frozenset(" \t\n;&|()<>")
_SPECIAL_PARAMETERS: Final = frozenset("?$#@*!-0123456789")
_BRACE_OPERATORS: Final = (":-", ":+", ":=", "##", "%%", "-", "+", "=", "#", "%")


class ShellSyntaxError(Exception):
    """The text is no command of this shell; `near` is the token at fault, empty at the end of the text."""

    def __init__(self, near: str, line: int) -> None:
        super().__init__(near)
        self.near = near
        self.line = line


class Kind(Enum):
    """What a token is."""

    WORD = auto()
    OPERATOR = auto()
    REDIRECT = auto()
    NEWLINE = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `text` is the operator, `word` the word, `descriptor` that of a redirection."""

    kind: Kind
    text: str
    line: int
    word: Word | None = None
    descriptor: int = -1


class Lexer:
    """Tokens of one text from a position on.

    `substitute` parses the inside of `$(` at a position and returns the commands and the position after the
    closing parenthesis.
    """

    def __init__(self, text: str, position: int, substitute: Callable[[str, int], tuple[CommandList, int]]) -> None:
        self.text = text
        self.position = position
        self._substitute = substitute

    def next(self) -> Token:
        """The next token; END for ever at the end."""
        self._skip_blanks()
        if self.position >= len(self.text):
            return Token(Kind.END, "", self._line())
        if self._peek() == "\n":
            return self._fixed(Kind.NEWLINE, "\n")
        return self._redirect() or self._operator() or self._word()

    def _line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _take(self) -> str:
        character = self._peek()
        if not character:
            raise ShellSyntaxError("", self._line())
        self.position += 1
        return character

    def _fixed(self, kind: Kind, text: str) -> Token:
        token = Token(kind, text, self._line())
        self.position += len(text)
        return token

    def _skip_blanks(self) -> None:
        while self.text.startswith((" ", "\t", "\r", "\\\n"), self.position):
            self.position += 2 if self._peek() == "\\" else 1
        if self._peek() == "#":
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end

    def _operator(self) -> Token | None:
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.position):
                return self._fixed(Kind.OPERATOR, operator)
        return None

    def _redirect(self) -> Token | None:
        start = self.position
        digit = self._peek() if self._peek().isdigit() else ""
        for operator in ("<<", *_REDIRECTS):
            if self.text.startswith(operator, start + len(digit)):
                if operator == "<<":
                    raise ShellSyntaxError("<<", self._line())
                line = self._line()
                self.position = start + len(digit) + len(operator)
                descriptor = int(digit) if digit else int(operator != "<")
                return Token(Kind.REDIRECT, operator, line, descriptor=descriptor)
        return None

    def _word(self) -> Token:
        line, start = self._line(), self.position
        parts: list[Part] = []
        while self._peek() and self._peek() not in _BREAKS:
            parts.extend(self._unquoted_part())
        if not parts and self.position == start:
            raise ShellSyntaxError(self._peek(), line)
        return Token(Kind.WORD, self.text[start : self.position], line, word=Word(_joined(parts)))

    def _unquoted_part(self) -> list[Part]:
        character = self._take()
        if character == "'":
            return [Literal(self._until("'"), quoted=True)]
        if character == '"':
            return self._double_quoted()
        if character == "\\":
            escaped = self._take()
            return [] if escaped == "\n" else [Literal(escaped, quoted=True)]
        if character in "$`":
            return [self._expansion(character, quoted=False)]
        return [Literal(character, quoted=False)]

    def _until(self, mark: str) -> str:
        end = self.text.find(mark, self.position)
        if end < 0:
            raise ShellSyntaxError("", self._line())
        text = self.text[self.position : end]
        self.position = end + len(mark)
        return text

    def _double_quoted(self) -> list[Part]:
        parts: list[Part] = [Literal("", quoted=True)]
        while (character := self._take()) != '"':
            if character == "\\" and self._peek() in '$`"\\\n':
                escaped = self._take()
                parts.append(Literal("" if escaped == "\n" else escaped, quoted=True))
            elif character in "$`":
                parts.append(self._expansion(character, quoted=True))
            else:
                parts.append(Literal(character, quoted=True))
        return parts

    def _expansion(self, opening: str, *, quoted: bool) -> Part:
        if opening == "`":
            return self._backquoted(quoted=quoted)
        following = self._peek()
        if self.text.startswith("((", self.position):
            raise ShellSyntaxError("$((", self._line())
        if following == "(":
            body, self.position = self._substitute(self.text, self.position + 1)
            return Substitution(body, quoted)
        if following == "{":
            self.position += 1
            return self._braced(quoted=quoted)
        name = self._name()
        return Parameter(name, quoted) if name else Literal("$", quoted=quoted)

    def _backquoted(self, *, quoted: bool) -> Substitution:
        inner = self._until("`")
        body, end = self._substitute(inner + ")", 0)
        if end != len(inner) + 1:
            raise ShellSyntaxError(")", self._line())
        return Substitution(body, quoted)

    def _name(self) -> str:
        if self._peek() and self._peek() in _SPECIAL_PARAMETERS:
            return self._take()
        start = self.position
        while self._peek().isalnum() or self._peek() == "_":
            self.position += 1
        return self.text[start : self.position]

    def _braced(self, *, quoted: bool) -> Parameter:
        name = self._name()
        for operator in _BRACE_OPERATORS:
            if self.text.startswith(operator, self.position):
                self.position += len(operator)
                return Parameter(name, quoted, operator, self._brace_argument(quoted=quoted))
        if not name or self._take() != "}":
            raise ShellSyntaxError("${", self._line())
        return Parameter(name, quoted)

    def _brace_argument(self, *, quoted: bool) -> Word:
        parts: list[Part] = []
        while self._peek() != "}":
            parts.extend(self._unquoted_part())
        self._take()
        return Word(_joined([_requoted(part) if quoted else part for part in parts]))


def _requoted(part: Part) -> Part:
    return Literal(part.text, quoted=True) if isinstance(part, Literal) else part


def _joined(parts: list[Part]) -> tuple[Part, ...]:
    """Neighbouring literals of one kind as one: keywords are recognised by that."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Literal) and isinstance(last, Literal) and part.quoted == last.quoted:
            joined[-1] = Literal(last.text + part.text, part.quoted)
        else:
            joined.append(part)
    return tuple(joined)
