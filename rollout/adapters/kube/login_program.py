"""Programs that give credentials (`exec` in a kubeconfig), as the `kubernetes` package starts them, kept in bounds.

The package waits for them for ever, while every request waits for it: one that hangs in the middle of a night would
take the lock with it, and leave nodes as they are. A person at a terminal may be asked, but at the beginning only.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from rollout.adapters.kube.client_parts import client_parts
from rollout.adapters.secrets import without_secrets

_SENTENCE = "no answer within {:.0f}s"
LOGIN_LIMIT = 30.0
"""Seconds that a program has for its answer; those of cloud providers take one to ten."""

_PAUSE = 30.0


class Programs:
    """Starts them in the package's place."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._may_ask = sys.stdin is not None and sys.stdin.isatty()
        self._hung_until: dict[str, float] = {}
        self.Popen, self.PIPE = self._started, subprocess.PIPE

    def __call__(self, *arguments: Any) -> Any:
        """Make the package's own object, without what of our environment is secret."""
        login = self._make(*arguments)
        login.env = without_secrets(login.env)
        return login

    def _started(self, arguments: Any, **given: Any) -> "_Login":
        """Stands for `subprocess.Popen`. One that has just hung is not waited for again by every request."""
        if time.monotonic() < self._hung_until.get(arguments[0], 0.0):
            raise TimeoutError(_SENTENCE.format(LOGIN_LIMIT))
        limit, self._may_ask = None if self._may_ask else LOGIN_LIMIT, False
        return _Login(arguments, limit, given, hung=lambda: self._hung(arguments[0]))

    def _hung(self, program: str) -> None:
        self._hung_until[program] = time.monotonic() + _PAUSE


class _Login(subprocess.Popen[str]):
    def __init__(self, arguments: Any, limit: float | None, given: Any, hung: Callable[[], None]) -> None:
        self._limit, self._hung = limit, hung
        # one that may not ask the operator has a group of its own: whatever it has started has to end with it
        super().__init__(arguments, **given, process_group=None if limit is None else 0)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002
        """As asked, but not for ever."""
        try:
            return super().communicate(input, timeout or self._limit)
        except subprocess.TimeoutExpired:
            self._hung()
            self._end()
            # not the exception's own words: they have the arguments, which may hold secrets
            raise TimeoutError(_SENTENCE.format(LOGIN_LIMIT)) from None
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        if self._limit is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        for stream in filter(None, (self.stdout, self.stderr)):
            stream.close()


@cache
def bind_programs() -> None:
    """Have the package start them so."""
    parts = client_parts()
    programs = Programs(parts.kube_config.ExecProvider)
    parts.kube_config.ExecProvider = programs
    parts.exec_provider.subprocess = programs
