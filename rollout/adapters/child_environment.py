"""What programs that we start inherit of our environment: all but our own secrets.

A gate command, a ProxyCommand or a playbook is the operator's own, but what it starts in turn, logs or prints is not.
"""

import os
from collections.abc import Mapping

_PREFIX = "ROLLOUT_"
_SECRET_NAMES = frozenset({"ROLLOUT_NOTIFY"})
# the URL of a Pushgateway may have a password in it
_SECRET_WORDS = ("PASSPHRASE", "PASSWORD", "SECRET", "TOKEN", "PUSHGATEWAY")


def child_environment() -> dict[str, str]:
    """This process's environment without its secrets."""
    return without_secrets(os.environ)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold no secret of ours."""
    return {name: value for name, value in environment.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether a variable of this name is a secret of ours: a passphrase, a token, a URL with a password."""
    return name in _SECRET_NAMES or (name.startswith(_PREFIX) and any(word in name for word in _SECRET_WORDS))
