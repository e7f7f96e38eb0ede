"""Secrets of ours: kept from the programs that we start, and out of the texts that people read.

A gate command, a ProxyCommand or a playbook is the operator's own, but what it starts in turn, logs
or prints is not.
"""

import base64
import os
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

# What is shorter is no secret, and may be a part of any word.
_SHORTEST = 8
_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
# Up to the last @: what a password should have had encoded may stand in it as it is.
_USERINFO = re.compile(r"(?<=://)\S*@")
_PREFIX = "ROLLOUT_"
# those of the places of notifications are secrets, and the URL of a Pushgateway may have a password
# in it
_SECRET_WORDS = ("PASSPHRASE", "PASSWORD", "SECRET", "TOKEN", "PUSHGATEWAY", "NOTIFY")


def header_value(text: str) -> str:
    """Return a header's value without the white space around it, as a file's last line ends in.

    Raises `ValueError` for a value that no header can carry; the error does not hold it.
    """
    value = text.strip()
    if not _SENDABLE.fullmatch(value):
        raise ValueError("a line break inside, or a character beyond ASCII")
    return value


def basic_authorization(userinfo: str) -> str:
    """Return the header's value for the user and password of a URL."""
    return f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}"


def without_userinfo(text: str) -> str:
    """Return the text with no user and password in its URLs."""
    return _USERINFO.sub("", text)


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each of these values replaced: a server may send back what it was sent."""
    for secret in secrets:
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, "***")
    return text


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return an environment, this process's own as a rule, without our secrets."""
    return {name: value for name, value in environment.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether a variable of this name is a secret of ours: a passphrase, a token, a URL with a password."""
    return name.startswith(_PREFIX) and any(word in name for word in _SECRET_WORDS)
