"""Finds host names that an OpenSSH configuration treats alike.

They match the same wildcards, and no line names them. If a line is not understood, ssh is asked
about every name.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from msgspec import Struct

# Names of a kind get the same answer: a name in a line, or which wildcards match.
Kind = str | tuple[bool, ...]

_LINE = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9]*)(?:[ \t]*=[ \t]*|[ \t]+)([^ \t].*)")
_QUOTED = re.compile(r'"[^"]*"')
_QUOTE_OR_BACKSLASH = re.compile(r"""["'\\]""")
# Other criteria, such as exec, may depend on the host.
_HOST_INDEPENDENT = {
    "localnetwork",
    "localuser",
    "sessiontype",
    "command",
    "tagged",
    "user",
    "version",
}
_HOST_CRITERIA = {"host", "originalhost"}
_CRITERIA_ALONE = {"all", "canonical", "final"}
_OFF = ("no", "none")
# ssh -G keeps tokens such as %h here.
_TOKENS_KEPT = {"identityfile", "proxycommand"}
_NEVER_USED = {"controlpath", "localcommand", "remotecommand"}
_ONLY_KNOWN_TOKENS = re.compile(r"(?:[^%]|%[%dhnpru])*")
# ssh rewrites upper-case letters, and addresses such as 10.1.
_NAME = re.compile(r"[a-z][a-z0-9._-]*|[a-z0-9._-]*[g-wyz_-][a-z0-9._-]*")
# ssh prints ::102:304 as ::1.2.3.4.
_IPV4_COMPATIBLE = "::"
# Between names, as in user@host:22 or ssh://[::1]:22.
_SEPARATORS = (re.compile(r"[^a-z0-9._-]+"), re.compile(r"[^a-z0-9._:-]+"))


class HostPatterns(Struct, frozen=True):
    """What a configuration says about host names."""

    wildcards: tuple[re.Pattern[str], ...]
    # In lower case.
    words: frozenset[str]

    def kind_of(self, name: str) -> Kind:
        """Return the kind of a name."""
        may_be_named = not _is_printed_unchanged(name) or name in self.words
        if may_be_named:
            return name
        return tuple(wildcard.fullmatch(name) is not None for wildcard in self.wildcards)


def host_patterns(texts: Sequence[str]) -> HostPatterns | None:
    """Return None if every name may differ."""
    patterns = set[str]()
    words = set[str]()
    for text in texts:
        for line in text.split("\n"):
            patterns_of_line = _patterns_of_line(line)
            if patterns_of_line is None:
                return None
            patterns.update(patterns_of_line)
        for separators in _SEPARATORS:
            words.update(separators.split(text.lower()))
    wildcards = sorted(pattern for pattern in patterns if "*" in pattern or "?" in pattern)
    return HostPatterns(tuple(_compile(wildcard) for wildcard in wildcards), frozenset(words))


def _is_printed_unchanged(name: str) -> bool:
    if _NAME.fullmatch(name):
        return True
    if "%" in name:
        # An IPv6 zone, whose `%` separates words.
        return False
    try:
        return str(ip_address(name)) == name and not name.startswith(_IPV4_COMPATIBLE)
    except ValueError:
        return False


def _compile(wildcard: str) -> re.Pattern[str]:
    # Several stars would make the search slow.
    without_repeats = re.sub(r"\*+", "*", wildcard)
    shape = re.escape(without_repeats).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(shape, re.IGNORECASE)


def _patterns_of_line(line: str) -> Sequence[str] | None:
    """Return None if the line tells hosts apart otherwise."""
    line = line.rstrip(" \t\r\f")
    if not line or line.lstrip(" \t").startswith("#"):
        return ()
    parts = _LINE.fullmatch(line)
    if parts is None:
        return None
    keyword = parts[1].lower()
    value = parts[2]
    if keyword == "host":
        return _plain_patterns(value.split())
    if keyword == "match":
        # ssh also reads `Match host=web`.
        return _patterns_of_match(value.replace("=", " ").split())
    return None if _may_depend_on_name(keyword, value) else ()


def _may_depend_on_name(keyword: str, value: str) -> bool:
    if keyword.startswith("canonical"):
        # ssh asks DNS about the name.
        return value.lower() not in _OFF
    if keyword == "hostname":
        # ssh might print a host that no line names.
        return not _is_printed_unchanged(value.lower())
    has_tokens = "%" in value
    if not has_tokens or keyword in _NEVER_USED:
        return False
    if keyword in _TOKENS_KEPT:
        return not _ONLY_KNOWN_TOKENS.fullmatch(value)
    # ssh replaces the tokens, maybe by the name.
    return True


def _patterns_of_match(words: Iterable[str]) -> Sequence[str] | None:
    remaining_words = iter(words)
    patterns = list[str]()
    for word in remaining_words:
        criterion = word.lower().removeprefix("!")
        if criterion in _CRITERIA_ALONE:
            continue
        argument = next(remaining_words, "")
        if criterion in _HOST_CRITERIA:
            patterns += _without_quotes(argument).split(",")
            continue
        # A quote or backslash may join it to the next word.
        is_one_word = _unquote([argument]) is not None
        if criterion not in _HOST_INDEPENDENT or not is_one_word:
            return None
    return _plain_patterns(patterns)


def _plain_patterns(words: Iterable[str]) -> Sequence[str] | None:
    """Return patterns without quotes and `!`.

    Negation does not matter to which names are alike.
    """
    unquoted = _unquote(words)
    if unquoted is None:
        return None
    return [word.removeprefix("!") for word in unquoted]


def _unquote(words: Iterable[str]) -> Sequence[str] | None:
    """None if quotes or a backslash remain."""
    unquoted = list[str]()
    for word in words:
        inner = _without_quotes(word)
        if _QUOTE_OR_BACKSLASH.search(inner):
            return None
        unquoted.append(inner)
    return unquoted


def _without_quotes(word: str) -> str:
    return word[1:-1] if _QUOTED.fullmatch(word) else word
