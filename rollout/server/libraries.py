"""The library that only the server needs: a plain install goes without it, the extra `fleetlock` brings it."""

import sys
from importlib import import_module

from rollout.errors import RolloutError


def require_libraries() -> None:
    """`RolloutError` with the command that installs it where it is missing."""
    try:
        import_module("aiohttp")
    except ImportError as error:
        raise RolloutError(
            f"the FleetLock server needs a library that is not installed: {error}",
            hint=f"{sys.executable} -m pip install 'node-rollout[fleetlock]'",
        ) from error
