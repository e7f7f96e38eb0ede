"""Shell scripts read into what runs them: POSIX sh without here-documents and arithmetic.

A script is read to its end before any of it runs. There are no tokens: the reader knows at each place what may stand
there.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from rollout.lab.hosts import running
from rollout.lab.hosts.running import Node
from rollout.lab.hosts.words import Part, Word, literal, parameter

_BLANK: Final = re.compile(r"(?:[ \t\r]|\\\n)*(?:#[^\n]*)?")
_BLANK_LINES: Final = re.compile(r"(?:[ \t\r\n]|\\\n|(?<![^ \t\r\n;|&()])#[^\n]*)*")
_PLAIN: Final = re.compile(r"[^\s;&|<>()'\"\\$`]+")
_QUOTED: Final = re.compile(r"(?:[^\"\\$`]|\\(?![\"\\$`\n]))+")
_KEYWORD: Final = re.compile(r"(?:[a-z]+|[{}!])(?=[\s;&|<>()]|\Z)")
_FUNCTION: Final = re.compile(r"(\w+)[ \t]*\([ \t]*\)")
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_]\w*)=")
_REDIRECT: Final = re.compile(r"(&>|[0-9]?(?:>>|>&|>|<(?!<)))[ \t]*")
_PARAMETER: Final = re.compile(r"\{(\w+|[?#@*$!-])(:?[-=+]|##?|%%?)?|(\w+|[?#@*$!-])")
_TOKEN: Final = re.compile(r"\$\(\(|<<|&&|\|\||;;|[;&|()]|[^\s;&|<>()]+|\S")
_ENDS: Final = frozenset({"then", "do", "done", "fi", "else", "elif", "esac", "}"})


class ShellSyntaxError(Exception):
    """The script cannot be read; `near` is what is in the way, empty for the end, `line` its number."""

    def __init__(self, near: str, line: int) -> None:
        super().__init__(near)
        self.near, self.line = near, line


@lru_cache(maxsize=64)
def parse(script: str) -> Node:
    """What runs the script, as often as wanted; raises ShellSyntaxError."""
    reader = _Reader(script)
    node = reader.commands()
    if reader.at < len(script):
        raise reader.error()
    return node


class _Reader:
    """A script, and how far it has been read."""

    def __init__(self, script: str) -> None:
        self.script, self.at = script, 0

    @property
    def line(self) -> int:
        return self.script.count("\n", 0, self.at) + 1

    def error(self) -> ShellSyntaxError:
        """What stands here is wrong."""
        self._skip(_BLANK_LINES)
        match = _TOKEN.match(self.script, self.at)
        return ShellSyntaxError(match[0] if match else "", self.line)

    def _skip(self, pattern: re.Pattern[str] = _BLANK) -> bool:
        """Go on behind what has no meaning; always False, to stand before a condition."""
        match = pattern.match(self.script, self.at)
        self.at = match.end() if match else self.at
        return False

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self.script, self.at)
        if match:
            self.at = match.end()
        return match

    def _take(self, text: str, *, but: tuple[str, ...] = ()) -> bool:
        """Whether the text stood here, and none of the longer ones; it is read then."""
        here = self.script.startswith(text, self.at) and not self.script.startswith(but, self.at)
        self.at += len(text) if here else 0
        return here

    def _keyword(self) -> str:
        match = _KEYWORD.match(self.script, self.at)
        return match[0] if match else ""

    def _expect(self, *words: str) -> str:
        self._skip(_BLANK_LINES)
        for word in words:
            if self._keyword() == word or (not word[0].isalpha() and self.script.startswith(word, self.at)):
                self.at += len(word)
                return word
        raise self.error()

    # Lists.

    def commands(self, *, required: bool = False) -> Node:
        """Commands up to what can begin none; `required`: there must be one."""
        nodes = list[Node]()
        while True:
            self._skip(_BLANK_LINES)
            if self.at == len(self.script) or self.script[self.at] in ");" or self._keyword() in _ENDS:
                break
            node = self._and_or()
            self._skip()
            background = self._take("&", but=("&&", "&>"))
            nodes.append(running.background(node) if background else node)
            if not background and not self._take(";", but=(";;",)) and not self._take("\n"):
                break
        if required and not nodes:
            raise self.error()
        return running.sequence(nodes)

    def _and_or(self) -> Node:
        steps = [("", *self._pipeline())]
        while True:
            self._skip()
            joint = next((joint for joint in ("&&", "||") if self._take(joint)), "")
            if not joint:
                return running.and_or(steps)
            self._skip(_BLANK_LINES)
            steps.append((joint, *self._pipeline()))

    def _pipeline(self) -> tuple[Node, bool]:
        """What runs it, and whether it is negated."""
        self._skip()
        negated = self._keyword() == "!"
        self.at += int(negated)
        commands = [self._command()]
        while self._skip() or self._take("|", but=("||",)):
            self._skip(_BLANK_LINES)
            commands.append(self._command())
        return running.pipeline(commands), negated

    # Commands.

    def _command(self) -> Node:
        self._skip()
        keyword = self._keyword()
        compounds: dict[str, Callable[[], Node]] = {
            "if": self._if,
            "while": self._loop,
            "until": self._loop,
            "for": self._for,
            "case": self._case,
            "{": self._group,
        }
        if self._take("("):
            body = self.commands(required=True)
            self._expect(")")
            return self._redirected(running.subshell(body))
        if keyword in compounds:
            self.at += len(keyword)
            return self._redirected(compounds[keyword]())
        if keyword in _ENDS:
            raise self.error()
        if function := self._match(_FUNCTION):
            self._skip(_BLANK_LINES)
            return running.function(function[1], self._command())
        return self._simple()

    def _if(self) -> Node:
        branches, otherwise = list[tuple[Node, Node]](), None
        word = "if"
        while word in ("if", "elif"):
            condition = self.commands(required=True)
            self._expect("then")
            branches.append((condition, self.commands(required=True)))
            word = self._expect("elif", "else", "fi")
        if word == "else":
            otherwise = self.commands(required=True)
            self._expect("fi")
        return running.branches(branches, otherwise)

    def _loop(self) -> Node:
        until = self.script.startswith("until", self.at - 5)
        condition = self.commands(required=True)
        return running.loop(condition, self._body(), until=until)

    def _body(self) -> Node:
        self._expect("do")
        body = self.commands(required=True)
        self._expect("done")
        return body

    def _for(self) -> Node:
        self._skip()
        name = self._match(re.compile(r"\w+"))
        if name is None:
            raise self.error()
        self._skip(_BLANK_LINES)
        words = None
        if self._keyword() == "in":
            self.at += 2
            words = self._words()
        self._skip()
        self._take(";")
        return running.for_each(name[0], words, self._body())

    def _case(self) -> Node:
        self._skip()
        subject, choices = self._word(), list[tuple[tuple[Word, ...], Node]]()
        self._expect("in")
        while self._skip(_BLANK_LINES) or self._keyword() != "esac":
            self._take("(")
            patterns = self._words()
            while self._take("|"):
                patterns += self._words()
            self._expect(")")
            choices.append((patterns, self.commands()))
            self._take(";;")
        self._expect("esac")
        return running.case(subject, choices)

    def _group(self) -> Node:
        body = self.commands(required=True)
        self._expect("}")
        return body

    def _redirected(self, node: Node) -> Node:
        redirects = list[tuple[str, Word]]()
        self._skip()
        while match := self._match(_REDIRECT):
            redirects.append((match[1], self._word()))
            self._skip()
        return running.redirected(node, redirects) if redirects else node

    def _simple(self) -> Node:
        line, words, redirects = self.line, list[Word](), list[tuple[str, Word]]()
        assignments = list[tuple[str, Word]]()
        while True:
            self._skip()
            if redirect := self._match(_REDIRECT):
                redirects.append((redirect[1], self._word()))
            elif not words and (assignment := self._match(_ASSIGNMENT)):
                assignments.append((assignment[1], self._word(empty=True)))
            elif word := self._word(empty=True):
                words.append(word)
            elif words or redirects or assignments:
                return running.simple(line, assignments, tuple(words), redirects)
            else:
                raise self.error()

    # Words.

    def _words(self) -> tuple[Word, ...]:
        words = list[Word]()
        while self._skip() or (word := self._word(empty=True)):
            words.append(word)
        return tuple(words)

    def _word(self, *, empty: bool = False, end: str = "") -> Word:
        """The word here, which may be `empty`; `end` ends it as well."""
        parts = list[Part]()
        while self.at < len(self.script) and not (end and self.script[self.at] in end):
            if self._take("'"):
                parts.append(literal(self._until("'"), quoted=True))
            elif self._take('"'):
                parts += self._in_quotes()
            elif self._take("\\\n"):
                continue
            elif self._take("\\"):
                self.at += 1
                parts.append(literal(self.script[self.at - 1 : self.at], quoted=True))
            elif self.script[self.at] in "$`":
                parts.append(self._dollar(quoted=False))
            elif plain := self._match(re.compile(rf"[^\s;&|<>()'\"\\$`{end}]+") if end else _PLAIN):
                parts.append(literal(plain[0], quoted=False))
            elif end and self.script[self.at] not in "()<>":
                self.at += 1
                parts.append(literal(self.script[self.at - 1], quoted=False))
            else:
                break
        if not parts and not empty:
            raise self.error()
        return tuple(parts)

    def _until(self, end: str) -> str:
        start, stop = self.at, self.script.find(end, self.at)
        self.at = len(self.script) if stop < 0 else stop + 1
        if stop < 0:
            raise self.error()
        return self.script[start:stop]

    def _in_quotes(self) -> list[Part]:
        parts = [literal("", quoted=True)]
        while not self._take('"'):
            if self._take("\\\n"):
                continue
            if self._take("\\") and self.script[self.at : self.at + 1] in ('"', "\\", "$", "`"):
                self.at += 1
                parts.append(literal(self.script[self.at - 1], quoted=True))
            elif plain := self._match(_QUOTED):
                parts.append(literal(plain[0], quoted=True))
            elif self.at < len(self.script):
                parts.append(self._dollar(quoted=True))
            else:
                raise self.error()
        # "$@" alone is no word where there are no arguments
        return parts[1:] if len(parts) > 1 else parts

    def _dollar(self, *, quoted: bool) -> Part:
        """A parameter, a substitution, or the character itself."""
        if self._take("`"):
            return running.substitution(parse(self._until("`")), quoted=quoted)
        if self.script.startswith("$((", self.at):
            raise self.error()
        if self._take("$("):
            body = self.commands()
            self._expect(")")
            return running.substitution(body, quoted=quoted)
        self.at += 1
        match = self._match(_PARAMETER)
        if match is None:
            return literal("$", quoted=quoted)
        argument: Word = ()
        if match[1]:
            argument = self._word(empty=True, end="}") if match[2] else ()
            self._expect("}")
        return parameter(match[1] or match[3], match[2] or "", argument, quoted=quoted)
