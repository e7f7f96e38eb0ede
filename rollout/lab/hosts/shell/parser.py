"""From tokens to the syntax tree, by recursive descent.

The grammar is that of POSIX sh, chapter 2.10, as far as tree.py has nodes for it.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from rollout.lab.hosts.shell.lexer import Kind, Lexer, ShellSyntaxError, Token
from rollout.lab.hosts.shell.tree import (
    AndOr,
    Case,
    Command,
    CommandList,
    Compound,
    For,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Pipeline,
    Redirect,
    Redirected,
    Simple,
    Word,
)

_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_CLOSING: Final = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


@lru_cache(maxsize=256)
def parse(script: str) -> CommandList:
    """The tree of a script; raises ShellSyntaxError.

    Kept, because a client sends the same few scripts to every host.
    """
    parser = _Parser(script, 0)
    commands = parser.command_list()
    parser.expect_end()
    return commands


def _substituted(text: str, position: int) -> tuple[CommandList, int]:
    parser = _Parser(text, position)
    commands = parser.command_list()
    return commands, parser.closing_parenthesis()


class _Parser:
    def __init__(self, text: str, position: int) -> None:
        self._lexer = Lexer(text, position, _substituted)
        self._token = self._lexer.next()
        self._compounds: dict[str, Callable[[], Compound]] = {
            "if": self._if,
            "while": self._loop,
            "until": self._loop,
            "for": self._for,
            "case": self._case,
            "{": self._braces,
        }

    # What the two entry points need.

    def command_list(self) -> CommandList:
        items: list[AndOr] = []
        self._skip_newlines()
        while not self._at_list_end():
            items.append(self._and_or())
            if not self._separator():
                break
        return CommandList(tuple(items))

    def expect_end(self) -> None:
        if self._token.kind is not Kind.END:
            raise self._unexpected()

    def closing_parenthesis(self) -> int:
        if not self._is_operator(")"):
            raise self._unexpected()
        return self._lexer.position

    # Tokens.

    def _advance(self) -> Token:
        token, self._token = self._token, self._lexer.next()
        return token

    def _unexpected(self) -> ShellSyntaxError:
        near = "newline" if self._token.kind is Kind.NEWLINE else self._token.text
        return ShellSyntaxError(near, self._token.line)

    def _is_operator(self, *operators: str) -> bool:
        return self._token.kind is Kind.OPERATOR and self._token.text in operators

    def _keyword(self) -> str:
        return (self._token.word.plain or "") if self._token.word is not None else ""

    def _expect_keyword(self, keyword: str) -> None:
        if self._keyword() != keyword:
            raise self._unexpected()
        self._advance()

    def _expect_operator(self, operator: str) -> None:
        if not self._is_operator(operator):
            raise self._unexpected()
        self._advance()

    def _skip_newlines(self) -> None:
        while self._token.kind is Kind.NEWLINE:
            self._advance()

    def _separator(self) -> bool:
        found = self._token.kind is Kind.NEWLINE or self._is_operator(";", "&")
        if self._is_operator(";", "&"):
            self._advance()
        self._skip_newlines()
        return found

    def _at_list_end(self) -> bool:
        return self._token.kind is Kind.END or self._is_operator(")", ";;") or self._keyword() in _CLOSING

    # Lists and pipelines.

    def _and_or(self) -> AndOr:
        first = self._pipeline()
        rest: list[tuple[str, Pipeline]] = []
        while self._is_operator("&&", "||"):
            operator = self._advance().text
            self._skip_newlines()
            rest.append((operator, self._pipeline()))
        return AndOr(first, tuple(rest), background=self._is_operator("&"))

    def _pipeline(self) -> Pipeline:
        negated = self._keyword() == "!"
        if negated:
            self._advance()
        commands = [self._command()]
        while self._is_operator("|"):
            self._advance()
            self._skip_newlines()
            commands.append(self._command())
        return Pipeline(tuple(commands), negated)

    # Commands.

    def _command(self) -> Command:
        compound = self._subshell if self._is_operator("(") else self._compounds.get(self._keyword())
        if compound is None:
            return self._simple()
        command = compound()
        return Redirected(command, tuple(self._redirects()))

    def _simple(self) -> Command:
        line = self._token.line
        words: list[Word] = []
        redirects: list[Redirect] = []
        while self._token.kind in (Kind.WORD, Kind.REDIRECT):
            if self._token.kind is Kind.REDIRECT:
                redirects.append(self._redirect())
            else:
                words.append(self._take_word())
            if len(words) == 1 and not redirects and self._is_operator("("):
                return self._function(words[0])
        if not words and not redirects:
            raise self._unexpected()
        return _simple(words, redirects, line)

    def _function(self, name: Word) -> Function:
        self._expect_operator("(")
        self._expect_operator(")")
        self._skip_newlines()
        if name.plain is None:
            raise self._unexpected()
        return Function(name.plain, self._command())

    def _take_word(self) -> Word:
        word = self._token.word
        if word is None:
            raise self._unexpected()
        self._advance()
        return word

    def _redirects(self) -> list[Redirect]:
        redirects: list[Redirect] = []
        while self._token.kind is Kind.REDIRECT:
            redirects.append(self._redirect())
        return redirects

    def _redirect(self) -> Redirect:
        token = self._advance()
        return Redirect(token.descriptor, token.text, self._take_word())

    # Compound commands.

    def _body(self) -> CommandList:
        body = self.command_list()
        if not body.items:
            raise self._unexpected()
        return body

    def _subshell(self) -> Group:
        self._expect_operator("(")
        body = self._body()
        self._expect_operator(")")
        return Group(body, subshell=True)

    def _braces(self) -> Group:
        self._advance()
        body = self._body()
        self._expect_keyword("}")
        return Group(body, subshell=False)

    def _if(self) -> If:
        branches: list[tuple[CommandList, CommandList]] = []
        while self._keyword() in ("if", "elif"):
            self._advance()
            condition = self._body()
            self._expect_keyword("then")
            branches.append((condition, self._body()))
        otherwise = None
        if self._keyword() == "else":
            self._advance()
            otherwise = self._body()
        self._expect_keyword("fi")
        return If(tuple(branches), otherwise)

    def _loop(self) -> Loop:
        until = self._keyword() == "until"
        self._advance()
        condition = self._body()
        return Loop(condition, self._do_group(), until)

    def _do_group(self) -> CommandList:
        self._expect_keyword("do")
        body = self._body()
        self._expect_keyword("done")
        return body

    def _for(self) -> For:
        self._advance()
        name = self._keyword()
        self._take_word()
        words: list[Word] | None = None
        if self._keyword() == "in":
            self._advance()
            words = []
            while self._token.kind is Kind.WORD:
                words.append(self._take_word())
        self._separator()
        return For(name, None if words is None else tuple(words), self._do_group())

    def _case(self) -> Case:
        self._advance()
        subject = self._take_word()
        self._skip_newlines()
        self._expect_keyword("in")
        self._skip_newlines()
        branches: list[tuple[tuple[Word, ...], CommandList]] = []
        while self._keyword() != "esac":
            branches.append((self._patterns(), self.command_list()))
            if self._is_operator(";;"):
                self._advance()
            self._skip_newlines()
        self._advance()
        return Case(subject, tuple(branches))

    def _patterns(self) -> tuple[Word, ...]:
        if self._is_operator("("):
            self._advance()
        patterns = [self._take_word()]
        while self._is_operator("|"):
            self._advance()
            patterns.append(self._take_word())
        self._expect_operator(")")
        return tuple(patterns)


def _simple(words: list[Word], redirects: list[Redirect], line: int) -> Simple:
    """Leading words of the form `name=value` are assignments."""
    assignments: list[tuple[str, Word]] = []
    while words and (assignment := _assignment(words[0])) is not None:
        assignments.append(assignment)
        words = words[1:]
    return Simple(tuple(assignments), tuple(words), tuple(redirects), line)


def _assignment(word: Word) -> tuple[str, Word] | None:
    first = word.parts[0] if word.parts else None
    if not isinstance(first, Literal) or first.quoted:
        return None
    match = _ASSIGNMENT.fullmatch(first.text)
    if match is None:
        return None
    return match[1], Word((Literal(match[2], quoted=False), *word.parts[1:]))
