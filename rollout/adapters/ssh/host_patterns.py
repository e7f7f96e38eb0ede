"""Finds host names that an OpenSSH configuration treats alike, to ask ssh once.

They match the same wildcards, and no line names them. If a line is not understood, or depends on
names otherwise, ssh is asked about every name.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from itertools import chain

from msgspec import Struct

# Names of a kind get the same answer: the name itself if a line may name it, else which wildcards
# match.
Kind = str | tuple[bool, ...]

_LINE = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9]*)(?:[ \t]*=[ \t]*|[ \t]+)([^ \t].*)")
_QUOTED = re.compile(r'"[^"]*"')
# One argument of Match follows; other criteria, such as exec, may depend on the host.
_CRITERIA = {"localnetwork", "localuser", "sessiontype", "command", "tagged", "user", "version"}
_HOST_CRITERIA = {"host", "originalhost"}
_CRITERIA_ALONE = {"all", "canonical", "final"}
_OFF = ("no", "none")
# ssh -G prints these with tokens, which rollout expands.
_EXPANDED_HERE = {"identityfile", "proxycommand"}
_EXPANDED_LATER = {"controlpath", "localcommand", "remotecommand"}
_TOKENS = re.compile(r"(?:[^%]|%[%dhnpru])*")
# ssh rewrites others: upper-case letters, and numeric addresses such as 10.1.
_NAME = re.compile(r"[a-z][a-z0-9._-]*|[a-z0-9._-]*[g-wyz_-][a-z0-9._-]*")
# ssh prints ::102:304 as ::1.2.3.4.
_IPV4_COMPATIBLE = "::"
# Between names in a value, such as user@host:22 or ssh://[::1]:22.
_SEPARATORS = (re.compile(r"[^a-z0-9._-]+"), re.compile(r"[^a-z0-9._:-]+"))


class HostPatterns(Struct, frozen=True):
    """What an OpenSSH configuration says about host names."""

    wildcards: tuple[re.Pattern[str], ...]
    # All words in lower case, whatever they mean.
    words: frozenset[str]

    def kind_of(self, name: str) -> Kind:
        """Return the kind of a name."""
        if not _is_printed_unchanged(name) or name in self.words:
            return name
        return tuple(wildcard.fullmatch(name) is not None for wildcard in self.wildcards)


def host_patterns(texts: Sequence[str]) -> HostPatterns | None:
    """Return the patterns that tell names apart; None if every name may differ."""
    patterns = dict[str, None]()
    for line in chain.from_iterable(text.split("\n") for text in texts):
        patterns_of_line = _patterns_of_line(line)
        if patterns_of_line is None:
            return None
        patterns |= dict.fromkeys(patterns_of_line)
    wildcards = [pattern for pattern in patterns if "*" in pattern or "?" in pattern]
    words = frozenset[str]()
    for separators in _SEPARATORS:
        words = words.union(*(separators.split(text.lower()) for text in texts))
    return HostPatterns(tuple(_compile(wildcard) for wildcard in wildcards), words)


def _is_printed_unchanged(name: str) -> bool:
    if _NAME.fullmatch(name):
        return True
    if "%" in name:
        # An IPv6 address with a zone, whose `%` separates words.
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
    """Return the line's host patterns; None if it tells hosts apart in another way."""
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
    """Whether what `ssh -G` prints of this option may depend on the name."""
    if keyword.startswith("canonical"):
        # ssh asks DNS about the name.
        return value.lower() not in _OFF
    if keyword == "hostname":
        # If ssh changes the value, it may print a host that no line names.
        return not _is_printed_unchanged(value.lower())
    if keyword in _EXPANDED_LATER or "%" not in value:
        return False
    return keyword not in _EXPANDED_HERE or _TOKENS.fullmatch(value) is None


def _patterns_of_match(words: Iterable[str]) -> Sequence[str] | None:
    """Return a Match line's host patterns; None as for `_patterns_of_line`."""
    remaining_words = iter(words)
    patterns = list[str]()
    for word in remaining_words:
        criterion = word.lower().removeprefix("!")
        if criterion in _CRITERIA_ALONE:
            continue
        argument = next(remaining_words, "")
        if criterion in _HOST_CRITERIA:
            inner = argument[1:-1] if _QUOTED.fullmatch(argument) else argument
            patterns += inner.split(",")
        elif criterion not in _CRITERIA or _unquote([argument]) is None:
            return None
    return _plain_patterns(patterns)


def _plain_patterns(words: Iterable[str]) -> Sequence[str] | None:
    """Return the patterns without quotes and `!`; None as for `_unquote`.

    Names that match the same patterns are alike, whether or not a pattern is negated.
    """
    unquoted = _unquote(words)
    return None if unquoted is None else [word.removeprefix("!") for word in unquoted]


def _unquote(words: Iterable[str]) -> Sequence[str] | None:
    """Return the words without quotes; None if quotes or a backslash remain."""
    unquoted = [word[1:-1] if _QUOTED.fullmatch(word) else word for word in words]
    if any(character in word for word in unquoted for character in "\"'\\"):
        return None
    return unquoted
