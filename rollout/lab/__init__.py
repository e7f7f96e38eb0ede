"""A simulated cluster over a real network: a Kubernetes API server and SSH hosts."""

import sys
from importlib import import_module

from rollout.errors import RolloutError

_LIBRARIES = ("aiohttp", "asyncssh")


def require_libraries() -> None:
    try:
        for name in _LIBRARIES:
            import_module(name)
    except ImportError as error:
        raise RolloutError(
            f"the simulated cluster needs libraries that are not installed: {error}",
            hint=f"{sys.executable} -m pip install 'aiohttp>=3.10' 'asyncssh>=2.18'",
        ) from error
