"""The parts of the `kubernetes` package that are used here, loaded without the rest of it, and its programs bounded.

The package imports all of itself with its first part: models, dynamic client, websockets, and with
them pydantic, requests and OAuth, which takes four times as long as everything that a command
needs. Here its packages stand empty while its loaders of kubeconfigs and its connections are
imported; what those only may need one day (OpenID Connect renews tokens by requests_oauthlib) is
imported when it is called. Nothing of that stays in `sys.modules`: whoever imports `kubernetes`
gets all of it, as ever. A version of the package that cannot be taken apart so is imported whole.

For programs that give credentials (`exec` in a kubeconfig) the package waits for ever, while every
request waits for it: one that hangs in the middle of a night would take the lock with it, and leave
nodes as they are. A person at a terminal may be asked, but at the beginning only.
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
_LATER: Mapping[str, Mapping[str, str]] = {
    "kubernetes.client": {"ApiClient": "kubernetes.client.ApiClient"},
    "requests_oauthlib": {"OAuth2Session": "requests_oauthlib.OAuth2Session"},
    "oauthlib": {"oauth2": "oauthlib.oauth2"},
    "oauthlib.oauth2": {},
}
_EMPTY = (_PACKAGE, f"{_PACKAGE}.client", f"{_PACKAGE}.config", f"{_PACKAGE}.utils")
_TURN = threading.Lock()

_EXEC_INFO = "KUBERNETES_EXEC_INFO"
_SENTENCE = "no answer within {:.0f}s"
# Seconds that a program has for its answer; those of cloud providers take one to ten.
LOGIN_LIMIT = 30.0
_PAUSE = 30.0


def client_parts() -> SimpleNamespace:
    """Return its modules, imported once: `configuration`, `rest`, and to log in `kube_config`, `incluster_config`.

    `programs` is what runs the programs that give credentials.
    """
    with _TURN:
        return _loaded()


@cache
def _loaded() -> SimpleNamespace:
    if _PACKAGE in sys.modules:
        return _imported()
    try:
        with _alone():
            return _imported()
    except Exception as error:  # noqa: BLE001 - whatever another version does, it can be imported whole
        _LOG.info("the kubernetes package is loaded whole: %s", error)
        return _imported()


def _imported() -> SimpleNamespace:
    from kubernetes.client import configuration, rest  # noqa: PLC0415 - not before its packages are in place
    from kubernetes.config import exec_provider, incluster_config, kube_config  # noqa: PLC0415 - as above

    programs = Programs()
    vars(exec_provider)["subprocess"] = programs
    return SimpleNamespace(
        configuration=configuration,
        rest=rest,
        kube_config=kube_config,
        incluster_config=incluster_config,
        programs=programs,
    )


class _Later:
    """Something that is imported when it is called, or something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return resolve_name(self._name)(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(resolve_name(self._name), name)


@contextmanager
def _alone() -> Iterator[None]:
    """Have empty packages in the places of the real ones; afterwards the import system knows of none of it."""
    known = {name: module for name, module in sys.modules.items() if _is_ours(name)}
    stand_ins = _stand_ins()
    sys.modules.update(stand_ins)
    try:
        configuration = importlib.import_module("kubernetes.client.configuration")
        vars(stand_ins["kubernetes.client"])["Configuration"] = configuration.Configuration
        yield
    finally:
        for name in filter(_is_ours, tuple(sys.modules)):
            del sys.modules[name]
        sys.modules.update(known)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] == _PACKAGE or name in _LATER


def _stand_ins() -> dict[str, ModuleType]:
    """Return the packages without anything in them but their folders, and what is imported later."""
    specification = find_spec(_PACKAGE)
    if specification is None or not specification.submodule_search_locations:
        raise ImportError("it is no package")
    modules = {name: ModuleType(name) for name in (*_EMPTY, *_LATER)}
    folders = specification.submodule_search_locations
    for name in _EMPTY:
        below = name.split(".")[1:]
        vars(modules[name])["__path__"] = ["/".join((folder, *below)) for folder in folders]
    for name, values in _LATER.items():
        vars(modules[name]).update(
            {attribute: _Later(place) for attribute, place in values.items()}
        )
    return modules


class Programs:
    """Runs them in the package's place, as its `subprocess`: without our secrets, and not for ever."""

    PIPE = subprocess.PIPE

    def __init__(self) -> None:
        self._may_ask = sys.stdin is not None and sys.stdin.isatty()
        self._hung_until: dict[str, float] = {}

    def ask_nothing(self) -> None:
        """Keep the terminal from programs, as `interactiveMode: Never` wants it."""
        self._may_ask = False

    def Popen(  # noqa: N802
        self, arguments: Sequence[str], *, env: Mapping[str, str], cwd: Any, **given: Any
    ) -> Any:
        """Return what answers as a process that has ended; one that has just hung is not waited for again."""
        environment = child_environment(env)
        if self._may_ask:
            self._may_ask = False
            asking = subprocess.Popen(arguments, env=environment, cwd=cwd, **given)  # noqa: S603 - the operator's
            stdout, stderr = asking.communicate()
            # What went to the terminal is None here, which the package cannot take.
            return _ended((stdout or "", stderr or ""), asking.returncode)
        environment[_EXEC_INFO] = _without_terminal(environment[_EXEC_INFO])
        if time.monotonic() < self._hung_until.get(arguments[0], 0.0):
            raise TimeoutError(_SENTENCE.format(LOGIN_LIMIT))
        try:
            done = run_program(arguments, seconds=LOGIN_LIMIT, environment=environment, folder=cwd)
        except subprocess.TimeoutExpired:
            self._hung_until[arguments[0]] = time.monotonic() + _PAUSE
            # not the exception's own words: they have the arguments, which may hold secrets
            raise TimeoutError(_SENTENCE.format(LOGIN_LIMIT)) from None
        printed = tuple(stream.decode(errors="replace") for stream in (done.stdout, done.stderr))
        return _ended(printed, done.returncode)


def _ended(printed: tuple[str, ...], status: int) -> Any:
    """Return what answers as a process that has ended."""
    return SimpleNamespace(communicate=lambda: printed, wait=lambda: status)


def _without_terminal(info: str) -> str:
    """Return what a program is told of its run, with nobody there to be asked.

    The package goes by stdout, though what counts is whether the program gets our stdin.
    """
    told = json.loads(info)
    told["spec"]["interactive"] = False
    return json.dumps(told)
