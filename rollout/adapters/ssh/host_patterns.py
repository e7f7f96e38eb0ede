"""Finds host names that an OpenSSH configuration treats alike, to ask ssh once.

They match the same wildcards, and no line names them. If a line is not understood, or depends on
names otherwise, ssh is asked about every name.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address

from msgspec import Struct

# Names of a kind get the same answer of ssh. A name that a line may name is a kind of its own; the
# kind of others is which wildcards match.
Kind = str | tuple[bool, ...]

_LINE = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9]*)(?:[ \t]*=[ \t]*|[ \t]+)([^ \t].*)")
_QUOTED = re.compile(r'"[^"]*"')
_QUOTE_OR_BACKSLASH = re.compile(r"""["'\\]""")
# Of Match, with one argument. Criteria that are not in these sets, such as exec, may depend on the
# host.
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
# ssh -G prints these with tokens such as %h, which rollout replaces.
_TOKENS_KEPT = {"identityfile", "proxycommand"}
# rollout does not use these.
_NEVER_USED = {"controlpath", "localcommand", "remotecommand"}
_ONLY_KNOWN_TOKENS = re.compile(r"(?:[^%]|%[%dhnpru])*")
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
        may_be_named = not _is_printed_unchanged(name) or name in self.words
        if may_be_named:
            return name
        return tuple(wildcard.fullmatch(name) is not None for wildcard in self.wildcards)


def host_patterns(texts: Sequence[str]) -> HostPatterns | None:
    """Return what the files' texts say about names; None if every name may differ."""
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
    """Whether `ssh -G` spells the name as it was given."""
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
    """Whether this option may make ssh's answer depend on the asked name."""
    if keyword.startswith("canonical"):
        # ssh asks DNS about the name.
        return value.lower() not in _OFF
    if keyword == "hostname":
        # If ssh changes the value, it may print a host that no line names.
        return not _is_printed_unchanged(value.lower())
    has_tokens = "%" in value
    if not has_tokens or keyword in _NEVER_USED:
        return False
    if keyword in _TOKENS_KEPT:
        return not _ONLY_KNOWN_TOKENS.fullmatch(value)
    # ssh replaces the tokens, maybe by the name.
    return True


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
            patterns += _without_quotes(argument).split(",")
            continue
        # An argument with a quote or backslash may go on in the next word.
        is_one_word = _unquote([argument]) is not None
        if criterion not in _HOST_INDEPENDENT or not is_one_word:
            return None
    return _plain_patterns(patterns)


def _plain_patterns(words: Iterable[str]) -> Sequence[str] | None:
    """Return the patterns without quotes and `!`; None as for `_unquote`.

    Names that match the same patterns are alike, whether or not a pattern is negated.
    """
    unquoted = _unquote(words)
    if unquoted is None:
        return None
    return [word.removeprefix("!") for word in unquoted]


def _unquote(words: Iterable[str]) -> Sequence[str] | None:
    """Return the words without quotes; None if quotes or a backslash remain."""
    unquoted = list[str]()
    for word in words:
        inner = _without_quotes(word)
        if _QUOTE_OR_BACKSLASH.search(inner):
            return None
        unquoted.append(inner)
    return unquoted


def _without_quotes(word: str) -> str:
    return word[1:-1] if _QUOTED.fullmatch(word) else word
