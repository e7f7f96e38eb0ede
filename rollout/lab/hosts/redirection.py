"""Where a command's output goes on a simulated host, and where its input comes from."""

from dataclasses import replace

from rollout.lab.hosts import files
from rollout.lab.hosts.process import Buffer, Input, Process, Sink, Streams


class RedirectError(Exception):
    """A redirection failed; the text is what the shell says about it."""


class _File:
    """A file being written; every write is on the disk at once."""

    def __init__(self, process: Process, path: str) -> None:
        self._machine, self._path = process.machine, path

    def write(self, text: str) -> None:
        files.write(self._machine, self._path, (files.read(self._machine, self._path) or "") + text)


def redirected(process: Process, operator: str, target: str) -> Streams:
    """The streams after one redirection, such as `2>` to a file; raises RedirectError."""
    streams = process.streams
    if operator.endswith("<"):
        return replace(streams, stdin=_opened(process, target))
    if operator.endswith(">&"):
        sinks = {"1": streams.out, "2": streams.err, "-": Buffer()}
        if target not in sinks:
            raise RedirectError(f"{target}: Bad file descriptor")
        sink = sinks[target]
    else:
        sink = _created(process, target, append=operator.endswith(">>"))
    if operator == "&>":
        return replace(streams, out=sink, err=sink)
    return replace(streams, err=sink) if operator[0] == "2" else replace(streams, out=sink)


def _opened(process: Process, path: str) -> Input:
    text = "" if path == "/dev/null" else files.read(process.machine, path)
    if text is None:
        raise RedirectError(f"{path}: No such file or directory")
    return Input.of(text)


def _created(process: Process, path: str, *, append: bool) -> Sink:
    if path == "/dev/null":
        return Buffer()
    if not files.may_write(process.user, path):
        raise RedirectError(f"{path}: Permission denied")
    if not append or files.read(process.machine, path) is None:
        files.write(process.machine, path, "")
    return _File(process, path)
