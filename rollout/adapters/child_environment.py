"""What programs that we start inherit of our environment: all but our own secrets.

A gate command, a ProxyCommand or a playbook is the operator's own, but what it starts in turn, logs or prints is not.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_PREFIX = "ROLLOUT_"
_SECRET_WORDS = ("PASSPHRASE", "PASSWORD", "SECRET", "TOKEN")


def child_environment() -> dict[str, str]:
    """This process's environment without its secrets."""
    return without_secrets(os.environ)


@contextmanager
def secrets_hidden() -> Iterator[None]:
    """Within it this process's own environment has none either: for a library that starts programs with it."""
    hidden = {name: os.environ.pop(name) for name in filter(is_secret, tuple(os.environ))}
    try:
        yield
    finally:
        os.environ.update(hidden)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that hold no secret of ours."""
    return {name: value for name, value in environment.items() if not is_secret(name)}


def is_secret(name: str) -> bool:
    """Whether a variable of this name is a secret of ours: the key's passphrase, the token of Prometheus."""
    return name.startswith(_PREFIX) and any(word in name for word in _SECRET_WORDS)
