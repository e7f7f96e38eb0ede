"""Names that come from elsewhere and end up in file names, request paths and Events: how they look, and are sorted."""

import re

_LONGEST_RUN = 63
_LONGEST_OBJECT = 253
_RUN = re.compile(r"[0-9a-z]+(?:-[0-9a-z]+)*")
_VERSION = re.compile(r"[0-9A-Za-z][-+.:_~0-9A-Za-z]{0,127}")
_NUMBER = re.compile(r"(\d+)")
_OBJECT = re.compile(r"[0-9a-z](?:[-.0-9a-z]*[0-9a-z])?")


def is_version(text: str) -> bool:
    """Whether it can be the version of an operating system, and be part of a command that is shown."""
    return _VERSION.fullmatch(text) is not None


def is_run_id(text: str) -> bool:
    """Whether it can be the id of a rollout: lower-case letters, digits and single dashes, and never a path."""
    return len(text) <= _LONGEST_RUN and _RUN.fullmatch(text) is not None


def is_object_name(text: str) -> bool:
    """Whether the API server would take it for the name of a Node, a workload or a namespace: a DNS subdomain."""
    return len(text) <= _LONGEST_OBJECT and ".." not in text and _OBJECT.fullmatch(text) is not None


def natural_key(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key in the order that people expect, runs of digits as numbers: worker-2 before worker-10."""
    return tuple((0, int(part), part) if part.isdigit() else (1, 0, part) for part in _NUMBER.split(name) if part)
