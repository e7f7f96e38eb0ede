"""Passphrases asked for on the operator's terminal.

Nobody is asked where there is no terminal to ask on: a job in the night would wait for ever.
"""

import getpass
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

PASSPHRASE_VARIABLE = "ROLLOUT_SSH_KEY_PASSPHRASE"  # noqa: S105 - the name of the variable

Ask = Callable[[Path], str | None]


def ask_on_terminal(file: Path) -> str | None:
    """Return what the operator enters for this key, unseen; None where nothing is entered or nobody can be asked."""
    if not sys.stdin.isatty():
        return None
    try:
        with warnings.catch_warnings():
            # Rather no passphrase than one that everybody can read on the screen.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(f"Passphrase for {file}: ") or None
    except (EOFError, OSError, getpass.GetPassWarning):
        return None
