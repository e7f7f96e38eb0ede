"""Secrets in texts that people read: header values that can be sent, and what is taken out of messages."""

import re
from collections.abc import Iterable

MASK = "***"
# What is shorter is no secret, and may be a part of any word.
_SHORTEST = 8
_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Up to the last @: what a password should have had encoded may stand in it as it is.
_USERINFO = re.compile(r"(?<=://)\S*@")


def header_value(text: str) -> str:
    """A header's value without the white space around it, as a file's last line ends in.

    Raises `ValueError` for a value that no header can carry; the error does not hold it.
    """
    value = text.strip()
    if not _SENDABLE.fullmatch(value):
        raise ValueError("a line break inside, or a character beyond ASCII")
    return value


def without_userinfo(text: str) -> str:
    """The text with no user and password in its URLs."""
    return _USERINFO.sub("", text)


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text with each of these values replaced: a server may send back what it was sent."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, MASK)
    return text
