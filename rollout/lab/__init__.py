"""A simulated cluster over a real network: a Kubernetes API server and SSH hosts.

It serves rehearsals, demonstrations and tests. Nothing outside this package may depend on how it
works inside.
"""

import sys
from importlib import import_module

from rollout.errors import RolloutError

# For the API server and for the hosts.
_LIBRARIES = ("aiohttp", "asyncssh")


def require_libraries() -> None:
    """Raise a RolloutError if a library is missing. Needs a temporary folder, for asyncssh."""
    try:
        for name in _LIBRARIES:
            import_module(name)
    except ImportError as error:
        raise RolloutError(
            f"the simulated cluster needs libraries that are not installed: {error}",
            hint=f"{sys.executable} -m pip install 'aiohttp>=3.10' 'asyncssh>=2.18'",
        ) from error
