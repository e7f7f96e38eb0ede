"""A simulated cluster over a real wire: an API server that clients cannot tell from a real one, and SSH hosts.

It is for rehearsal, for demonstration, and what the tests run against; nothing outside this package
may depend on how it works inside.
"""

import sys
from importlib import import_module

from rollout.errors import RolloutError

# the API server, and the hosts
_LIBRARIES = ("aiohttp", "asyncssh")


def require_libraries() -> None:
    """`RolloutError` with the command that installs them where one is missing.

    Importing asyncssh writes a temporary file.
    """
    try:
        for name in _LIBRARIES:
            import_module(name)
    except ImportError as error:
        raise RolloutError(
            f"the simulated cluster needs libraries that are not installed: {error}",
            hint=f"{sys.executable} -m pip install 'aiohttp>=3.10' 'asyncssh>=2.18'",
        ) from error
