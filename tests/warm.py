"""The real program, started warm: forked from a process that has imported it, and has run nothing.

Nine tenths of the CPU of a short command are imports, the same ones every time. What is forked goes on as
`python -m rollout` does from its first line: its arguments, environment, folder and streams are its own, signals have
Python's defaults, and it ends as every Python process does, but for the memory, which it leaves to the kernel. Whose
subject is the start itself, or a variable that the interpreter reads while it starts, takes a cold start
(`tests/ended.py`).
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, AnyStr, TextIO

ROOT = Path(__file__).parent.parent
# What the program itself loads only when it is about to be used.
LATE = (
    *("kubernetes.config.kube_config", "kubernetes.client.rest", "typer._adapters", "pydantic.type_adapter"),
    *("rich.progress", "multiprocessing.pool", "encodings.idna", "stringprep"),
)
# Variables that are read once the program runs. Any other may have been read by the interpreter, or a library while it
# was imported: it takes a cold start.
READ_LATE = (
    *("ANSIBLE_", "HOME", "KUBE", "LOGNAME", "PATH", "ROLLOUT_", "SSH_AUTH_SOCK", "TMPDIR", "USER", "XDG_"),
    *("COLUMNS", "COMP_", "LINES", "NO_COLOR", "TERM", "TZ", "_ROLLOUT_COMPLETE", "_TYPER_COMPLETE_"),
)
# Read by the interpreter, and what it has begun with: without a locale it takes this one (PEP 538).
ALIKE = {"LC_ALL": "C.UTF-8"}
# What stands before the arguments: as it would be started cold.
PROGRAM = (sys.executable, "-m", "rollout")
MESSAGE_BYTES = 128 * 1024
# By their numbers: name in `sys`, mode, and buffering: errors are written line by line, wherever they go.
STREAMS = (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))


def own_umask() -> int:
    """The mask of this process; it can be read only by setting one."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


@dataclass(frozen=True)
class Start:
    """What a process is started with, but for its streams."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    in_own_session: bool = False
    umask: int = field(default_factory=own_umask)

    @property
    def can_be_warm(self) -> bool:
        """Whether a warm start is the same as a cold one; and it has to fit into a message."""
        late = all(name.startswith(READ_LATE) or ALIKE.get(name) == text for name, text in self.environment.items())
        return late and len(self.encoded) < MESSAGE_BYTES

    @property
    def encoded(self) -> bytes:
        whole = [self.arguments, dict(self.environment), self.folder, self.in_own_session, self.umask]
        return json.dumps(whole).encode()


class Warm(subprocess.Popen[AnyStr]):
    """A process as any other that `subprocess` starts, but for its parent, who hears of its end and passes it on.

    Given are arguments, environment, folder, all three streams, and whether it has a session of its own.
    """

    # How `Popen` starts a process, and hears of its end, is no public interface; it has long been this.
    _close_pipe_fds: Any
    _handle_exitstatus: Any
    _waitpid_lock: Any
    _news: socket.socket

    def _execute_child(self, arguments: Sequence[str], *given: Any) -> None:
        folder, environment, pipes, in_own_session = given[4], given[5], given[9:15], given[20]
        start = Start(arguments[len(PROGRAM) :], environment, str(folder), in_own_session)
        self._news, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(_server(), [start.encoded], [pipes[0], pipes[3], pipes[5], theirs.fileno()])
        self._close_pipe_fds(*pipes)
        self.pid = self._next_number()
        self._child_created = True

    def _next_number(self) -> int:
        """What the parent says: first the process's number, then how it ended."""
        said = self._news.recv(32)
        assert said, "the process that warm ones are forked from is gone"
        return int(said)

    def _try_wait(self, flags: int) -> tuple[int, int]:
        if flags & os.WNOHANG and not select.select([self._news], [], [], 0)[0]:
            return 0, 0
        status = self._next_number()
        self._news.close()
        return self.pid, status

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        if self._waitpid_lock.acquire(blocking=False):
            try:
                ended, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if ended:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


@functools.cache
def _server() -> socket.socket:
    """The process of this worker that the others are forked from; it ends with the worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE_BYTES)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
            env={"PATH": os.environ["PATH"], "HOME": os.devnull},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


# The process that is forked from.


def load() -> None:
    """Import the program: all of it but the lab."""
    for module in (*modules("rollout"), *LATE):
        importlib.import_module(module)
    gc.freeze()  # what is here already is not looked through again in each process


def modules(package: str) -> Iterator[str]:
    """Those in a package, by name."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if module.name not in ("rollout.lab", "rollout.__main__"):
            yield module.name
            yield from modules(module.name) if module.ispkg else ()


@dataclass(frozen=True)
class Parent:
    """Forks a process for each request, and says when it has ended."""

    requests: socket.socket
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def serve(self) -> Start | None:
        """Return in each process that is forked, with its start, and at the end, with None."""
        self.selector.register(self.requests, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.data is not None:
                    self._pass_on(key)
                elif not (message := socket.recv_fds(self.requests, MESSAGE_BYTES, 4))[0]:
                    return None
                elif not self._fork(*message[1]):
                    return Start(*json.loads(message[0]))

    def _fork(self, *descriptors: int) -> int:
        """0 in the new process, which has these streams and nothing else that is open."""
        *streams, news = descriptors
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        pid = os.fork()
        if pid:
            self._follow(pid, socket.socket(fileno=news))
        else:
            self._let_go()
            os.close(news)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
            signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        for stream in streams:
            os.close(stream)
        return pid

    def _follow(self, pid: int, news: socket.socket) -> None:
        news.send(str(pid).encode())
        self.selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, news))

    def _pass_on(self, ended: selectors.SelectorKey) -> None:
        """How it ended, to who started it, who may not want to know."""
        pid, news = ended.data
        with contextlib.suppress(ConnectionError), news:
            news.send(str(os.waitpid(pid, 0)[1]).encode())
        self.selector.unregister(ended.fd)
        os.close(ended.fd)

    def _let_go(self) -> None:
        """Close what is the parent's alone."""
        for key in list(self.selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
                key.data[1].close()
        self.requests.close()
        self.selector.close()


def become(start: Start) -> None:
    """What `python -m rollout` does, once it has been loaded."""
    if start.in_own_session:
        os.setsid()
    own = () if "LC_ALL" in start.environment else ("LC_CTYPE",)  # Python's own: PEP 538
    inherited = {name: value for name, value in os.environ.items() if name in own}
    os.environ.clear()
    os.environ.update(inherited | dict(start.environment))
    time.tzset()
    for number, (name, mode, buffering) in enumerate(STREAMS):
        stream = _stream(number, mode, getattr(sys, name), buffering)
        for alias in (name, f"__{name}__"):
            setattr(sys, alias, stream)
    os.chdir(start.folder)
    os.umask(start.umask)
    sys.path[0] = start.folder
    sys.argv[1:] = start.arguments
    runpy.run_module("rollout", run_name="__main__", alter_sys=True)


def _stream(number: int, mode: str, like: TextIO, buffering: int) -> IO[Any]:
    """As Python opens it at its start: whether it is a terminal, or can be sought in, is looked at now."""
    return open(number, mode, buffering, like.encoding, like.errors, closefd=False)


def main() -> None:
    """Serve the worker that has started this process, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C at the terminal is pytest's to handle
    load()
    start = Parent(socket.socket(fileno=int(sys.argv[1]))).serve()
    if start is None:
        return
    try:
        become(start)
    except SystemExit as ended:
        if not isinstance(ended.code, int):
            raise
        code = ended.code
    else:
        code = 0
    leave(code)


def leave(code: int) -> None:
    """End as Python does, but for taking apart all that is loaded: it costs more than most commands."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python has words and a code of its own for it
    os._exit(code)


if __name__ == "__main__":
    main()
