"""Redirections of a shell command on a simulated host."""

from dataclasses import replace

from rollout.lab.hosts import files
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.process import Input, Nowhere, Sink, Streams
from rollout.lab.hosts.shell.tree import Redirect


class RedirectError(Exception):
    """A redirection failed; the text is what the shell says about it."""


class _File:
    """A file being written; every write is on the disk at once."""

    def __init__(self, machine: Machine, path: str, *, append: bool) -> None:
        self._machine = machine
        self._path = path
        if not append or files.read(machine, path) is None:
            files.write(machine, path, "")

    def write(self, text: str) -> None:
        files.write(self._machine, self._path, (files.read(self._machine, self._path) or "") + text)


def redirected(streams: Streams, redirect: Redirect, target: str, *, machine: Machine, user: str) -> Streams:
    """The streams after one redirection; raises RedirectError."""
    if redirect.operator == "<":
        return replace(streams, stdin=_opened(machine, target))
    if redirect.operator == ">&":
        return _with_sink(streams, redirect.descriptor, _duplicate(streams, target))
    sink = _created(machine, user, target, append=redirect.operator == ">>")
    if redirect.operator == "&>":
        return replace(streams, out=sink, err=sink)
    return _with_sink(streams, redirect.descriptor, sink)


def _with_sink(streams: Streams, descriptor: int, sink: Sink) -> Streams:
    if descriptor == 1:
        return replace(streams, out=sink)
    return replace(streams, err=sink) if descriptor == 2 else streams  # noqa: PLR2004 - standard error


def _duplicate(streams: Streams, target: str) -> Sink:
    known = {"1": streams.out, "2": streams.err, "-": Nowhere()}
    if target not in known:
        raise RedirectError(f"{target}: Bad file descriptor")
    return known[target]


def _opened(machine: Machine, path: str) -> Input:
    if path == "/dev/null":
        return Input()
    text = files.read(machine, path)
    if text is None:
        raise RedirectError(f"{path}: No such file or directory")
    return Input.of(text)


def _created(machine: Machine, user: str, path: str, *, append: bool) -> Sink:
    if path == "/dev/null":
        return Nowhere()
    if not files.may_write(user, path):
        raise RedirectError(f"{path}: Permission denied")
    if files.is_directory(machine, path):
        raise RedirectError(f"{path}: Is a directory")
    return _File(machine, path, append=append)
