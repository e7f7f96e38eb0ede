"""Imports only what is used of the `kubernetes` package.

All of it takes 20 MB. So empty packages stand in for it, unless that fails.
"""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

_LOG = logging.getLogger("rollout.api")
_PACKAGE = "kubernetes"
_EMPTY_PACKAGES = (_PACKAGE, f"{_PACKAGE}.client", f"{_PACKAGE}.utils")
_LOCK = threading.Lock()


def client_parts() -> SimpleNamespace:
    """Return the package's modules by name."""
    with _LOCK:
        return _load_once()


@cache
def _load_once() -> SimpleNamespace:
    is_imported_already = _PACKAGE in sys.modules
    if not is_imported_already:
        try:
            with _in_empty_packages():
                return _import_parts()
        except Exception as error:  # noqa: BLE001 - another version can be imported whole
            _LOG.info("the kubernetes package is loaded whole: %s", error)
    return _import_parts()


def _import_parts() -> SimpleNamespace:
    from kubernetes.client import configuration, rest  # noqa: PLC0415

    return SimpleNamespace(configuration=configuration, rest=rest)


@contextmanager
def _in_empty_packages() -> Iterator[None]:
    specification = find_spec(_PACKAGE)
    folders = specification.submodule_search_locations if specification else None
    try:
        for name in _EMPTY_PACKAGES:
            _, *subfolders = name.split(".")
            paths = ["/".join((folder, *subfolders)) for folder in folders or ()]
            module = ModuleType(name)
            # Its modules can be imported without its `__init__`.
            vars(module)["__path__"] = paths
            sys.modules[name] = module
        yield
    finally:
        for name in tuple(sys.modules):
            if name.partition(".")[0] == _PACKAGE:
                del sys.modules[name]
