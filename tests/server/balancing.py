"""One address before several servers, as a Service or a load balancer has it: connections go round, past the dead."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_CHUNK = 65536


def _pump(source: socket.socket, sink: socket.socket) -> None:
    """All bytes of one direction, and its end."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def _served(client: socket.socket, ports: Sequence[int], turn: int) -> None:
    with client:
        for port in (*ports[turn:], *ports[:turn]):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as server:
                server.settimeout(None)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()
                return


@contextmanager
def balanced(ports: Sequence[int]) -> Iterator[int]:
    """The port before these."""
    turns = itertools.count()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                turn = next(turns) % len(ports)
                threading.Thread(target=_served, args=(client, ports, turn), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
