"""Starts the program for tests, forked from a process that has imported it.

Importing takes most of the CPU time of a short command, and hundreds of tests start a process.
`python -m tests.program_server DESCRIPTOR` serves the socket with this descriptor.
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

# More bytes than a request has.
_REQUEST_SIZE = 200_000
# The lab runs in the process of the test.
_NOT_IMPORTED = ("rollout.lab", "rollout.__main__")
# Of prctl(2): a process whose parent has ended becomes a child of this process.
_SET_CHILD_SUBREAPER = 36

_LOCK = Lock()


def fork_program(
    arguments: Sequence[str],
    *,
    script: str,
    environment: Mapping[str, str],
    folder: Path,
    streams: Sequence[int],
    new_session: bool,
) -> int:
    """Start the program, or a script that runs it, as a child of this process.

    Return the process ID.
    """
    request = {
        "arguments": arguments,
        "script": script,
        "environment": environment,
        "folder": str(folder),
        "new_session": new_session,
    }
    with _LOCK:
        server = _server()
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        socket.send_fds(server, [json.dumps(request).encode()], streams)
        number = int(server.recv(_REQUEST_SIZE))
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return number


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, str(theirs.fileno())],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[1])},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _import_program() -> None:
    import rollout  # noqa: PLC0415 - only the server imports all of it

    for module in pkgutil.walk_packages(rollout.__path__, "rollout."):
        if not module.name.startswith(_NOT_IMPORTED):
            import_module(module.name)
    for name in ("paramiko", "rich.live"):
        import_module(name)
    import_module("rollout.adapters.kube.client_parts").client_parts()
    # A collection would copy the memory that the processes share.
    gc.collect()
    gc.freeze()


def _next_program(connection: socket.socket) -> str | None:
    """Return what to run in the process of a program, None in the server."""
    message, streams, *_ = socket.recv_fds(connection, _REQUEST_SIZE, 3)
    if not message:
        sys.exit()
    reading, writing = os.pipe()
    # The process between this one and the program ends at once, so that the test adopts the program.
    if os.fork() == 0:
        number = os.fork()
        if number == 0:
            request = json.loads(message)
            _become(request, streams)
            os.closerange(3, max(connection.fileno(), reading, writing, *streams) + 1)
            return str(request["script"])
        os.write(writing, str(number).encode())
        os._exit(0)
    os.wait()
    connection.send(os.read(reading, _REQUEST_SIZE))
    for descriptor in (reading, writing, *streams):
        os.close(descriptor)
    return None


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> None:
    """Set what the interpreter takes from its caller."""
    if request["new_session"]:
        os.setsid()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv = ["rollout", *request["arguments"]]
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)


if __name__ == "__main__":
    _import_program()
    socket_of_tests = socket.socket(fileno=int(sys.argv[1]))
    while (code := _next_program(socket_of_tests)) is None:
        pass
    exec(code or "from rollout.cli.entry import main; main()", {})  # noqa: S102 - code of a test
