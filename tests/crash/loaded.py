"""Imported by the process from which these tests fork: the program, all of it but the lab."""

import importlib
import pkgutil

import rollout

for module in pkgutil.walk_packages(rollout.__path__, "rollout."):
    if not module.name.startswith(("rollout.lab", "rollout.__main__")):
        importlib.import_module(module.name)
