"""The version of an operating system, out of its os-release."""

from collections.abc import Mapping

from rollout.gather.hosts.engine_status import version

# Fedora's VERSION is a sentence, and its VERSION_ID the same for every update of a release.
_KEYS = ("OSTREE_VERSION", "VERSION", "VERSION_ID")


def running_version(os_release: Mapping[str, str]) -> str:
    """The most exact one that has the form of a version; empty where none has."""
    return next(filter(None, (version(os_release.get(key, "")) for key in _KEYS)), "")
