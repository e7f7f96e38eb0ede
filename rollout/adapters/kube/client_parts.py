"""Imports only what is used of the `kubernetes` package, and limits credential programs.

Importing any part imports all of it: 20 MB of memory, and twice a short command's CPU time. So
empty packages stand in during the import; if that fails, all is imported.
"""

import importlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pkgutil import resolve_name
from types import ModuleType, SimpleNamespace
from typing import Any

from rollout.adapters.programs import run_program
from rollout.adapters.secrets import child_environment

_LOG = logging.getLogger("rollout.api")
_PACKAGE = "kubernetes"
_LAZY_OBJECTS: Mapping[str, Mapping[str, str]] = {
    "kubernetes.client": {"ApiClient": "kubernetes.client.ApiClient"},
    "requests_oauthlib": {"OAuth2Session": "requests_oauthlib.OAuth2Session"},
    "oauthlib": {"oauth2": "oauthlib.oauth2"},
    "oauthlib.oauth2": {},
}
_EMPTY_PACKAGES = (_PACKAGE, f"{_PACKAGE}.client", f"{_PACKAGE}.config", f"{_PACKAGE}.utils")
_LOCK = threading.Lock()

_EXEC_INFO = "KUBERNETES_EXEC_INFO"
# Seconds for a credential program; cloud providers' take one to ten.
LOGIN_LIMIT = 30.0
_HANG_PAUSE = 30.0


def client_parts() -> SimpleNamespace:
    """Return the package's modules by name, and `programs`, which runs credential programs."""
    with _LOCK:
        return _load_once()


@cache
def _load_once() -> SimpleNamespace:
    # Already imported: empty packages save nothing.
    if _PACKAGE in sys.modules:
        return _import_parts()
    try:
        with _in_empty_packages():
            return _import_parts()
    except Exception as error:  # noqa: BLE001 - another version can be imported whole
        _LOG.info("the kubernetes package is loaded whole: %s", error)
        return _import_parts()


def _import_parts() -> SimpleNamespace:
    # Only with empty packages in place.
    from kubernetes.client import configuration, rest  # noqa: PLC0415
    from kubernetes.config import exec_provider, incluster_config, kube_config  # noqa: PLC0415

    programs = CredentialPrograms()
    # It starts credential programs by its `subprocess`.
    vars(exec_provider)["subprocess"] = programs
    return SimpleNamespace(
        configuration=configuration,
        rest=rest,
        kube_config=kube_config,
        incluster_config=incluster_config,
        programs=programs,
    )


class _LazyObject:
    """Stands in for an object until it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return resolve_name(self._name)(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(resolve_name(self._name), name)


@contextmanager
def _in_empty_packages() -> Iterator[None]:
    """Put empty packages in place meanwhile."""
    replaced = {name: module for name, module in sys.modules.items() if _is_replaced(name)}
    stand_ins = _make_stand_ins()
    sys.modules.update(stand_ins)
    try:
        # The loader imports it from the package.
        configuration = importlib.import_module("kubernetes.client.configuration")
        vars(stand_ins["kubernetes.client"])["Configuration"] = configuration.Configuration
        yield
    finally:
        for name in tuple(sys.modules):
            if _is_replaced(name):
                del sys.modules[name]
        sys.modules.update(replaced)


def _is_replaced(name: str) -> bool:
    return name.partition(".")[0] == _PACKAGE or name in _LAZY_OBJECTS


def _make_stand_ins() -> dict[str, ModuleType]:
    specification = find_spec(_PACKAGE)
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("it is not a package")
    modules = {name: ModuleType(name) for name in (*_EMPTY_PACKAGES, *_LAZY_OBJECTS)}
    folders = specification.submodule_search_locations
    for name in _EMPTY_PACKAGES:
        below = name.split(".")[1:]
        vars(modules[name])["__path__"] = ["/".join((folder, *below)) for folder in folders]
    for name, objects in _LAZY_OBJECTS.items():
        for attribute, origin in objects.items():
            vars(modules[name])[attribute] = _LazyObject(origin)
    return modules


class CredentialPrograms:
    """Replaces `subprocess` in the package, to hide our secrets and to set a deadline.

    Without a deadline, a rollout could lose its lock.
    """

    PIPE = subprocess.PIPE

    def __init__(self) -> None:
        self._may_use_terminal = sys.stdin is not None and sys.stdin.isatty()
        # By program: monotonic time until it may be started again.
        self._hung_until: dict[str, float] = {}

    def use_no_terminal(self) -> None:
        """Keep programs from the terminal, for `interactiveMode: Never`."""
        self._may_use_terminal = False

    def Popen(  # noqa: N802
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Any, **options: Any
    ) -> Any:
        """Run the program to its end, unlike the original; return output and status.

        `TimeoutError` if it hangs, or did within `_HANG_PAUSE` seconds.
        """
        environment = child_environment(env)
        if self._may_use_terminal:
            # Only the first program may.
            self._may_use_terminal = False
            process = subprocess.Popen(arguments, env=environment, cwd=cwd, **options)  # noqa: S603
            stdout, stderr = process.communicate()
            # A terminal's stream is None, which the package does not expect.
            return _process_result((stdout or "", stderr or ""), process.returncode)
        environment[_EXEC_INFO] = _without_terminal(environment[_EXEC_INFO])
        timeout_error = TimeoutError(f"no response within {LOGIN_LIMIT:.0f}s")
        if time.monotonic() < self._hung_until.get(arguments[0], 0.0):
            raise timeout_error
        try:
            done = run_program(arguments, seconds=LOGIN_LIMIT, environment=environment, folder=cwd)
        except subprocess.TimeoutExpired:
            self._hung_until[arguments[0]] = time.monotonic() + _HANG_PAUSE
            # Its message holds arguments, which may be secret.
            raise timeout_error from None
        stdout = done.stdout.decode(errors="replace")
        stderr = done.stderr.decode(errors="replace")
        return _process_result((stdout, stderr), done.returncode)


def _process_result(printed: tuple[str, str], status: int) -> Any:
    """Return what the package uses of a `Popen`."""
    return SimpleNamespace(communicate=lambda: printed, wait=lambda: status)


def _without_terminal(info: str) -> str:
    """Return KUBERNETES_EXEC_INFO with `interactive` off.

    The package sets it by our stdout, but our stdin is not passed.
    """
    document = json.loads(info)
    document["spec"]["interactive"] = False
    return json.dumps(document)
