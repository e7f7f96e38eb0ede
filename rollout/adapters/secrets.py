"""Keeps rollout's secrets from programs and messages."""

import base64
import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

# A shorter one may be part of any word.
_SHORTEST_SECRET = 8
# To the last @: a password may hold one.
_USERINFO = re.compile(r"(?<=://)\S*@")
_PREFIX = "ROLLOUT_"
_SECRET_WORDS = ("PASSPHRASE", "PASSWORD", "SECRET", "TOKEN", "PUSHGATEWAY", "NOTIFY")


def header_value(text: str) -> str:
    """Return the stripped text, if an HTTP header can hold it.

    Else `ValueError` completes "it …", without the text.
    """
    value = text.strip()
    if not value:
        raise ValueError("is empty")
    if not value.isascii():
        raise ValueError("contains a non-ASCII character")
    if not value.isprintable():
        raise ValueError("contains a line break or another control character")
    return value


def basic_authorization(userinfo: str) -> str:
    """Encode a URL's `USER:PASSWORD`, which is percent-encoded."""
    return f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}"


def without_userinfo(text: str) -> str:
    """Remove users and passwords from URLs."""
    return _USERINFO.sub("", text)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Mask secrets, which a server may send back."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "***")
    return text


def child_environment() -> dict[str, str]:
    """Return our environment without rollout's secrets."""
    return {name: value for name, value in os.environ.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether the variable holds a secret of rollout's."""
    return name.startswith(_PREFIX) and any(word in name for word in _SECRET_WORDS)
