"""What else answers where a host is expected: things that speak no SSH, and those that pass on what others say."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

from rollout.model.host import Host

Say = Callable[["Stranger", socket.socket], None]
MakeStranger = Callable[[Say], "Stranger"]


class Stranger:
    """Something that listens on a port; `accepted` is how many came, `sent` how many bytes it got rid of."""

    def __init__(self, say: Say) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.say = say
        self.sent = 0
        self.accepted = 0
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.accepted += 1
            with connection, suppress(OSError):
                self.say(self, connection)

    def send_for_ever(self, connection: socket.socket, data: bytes, pause: float = 0) -> None:
        while True:
            connection.sendall(data)
            self.sent += len(data)
            time.sleep(pause)

    @property
    def host(self) -> Host:
        return Host("stranger", "127.0.0.1", self.listening.getsockname()[1])

    def close(self) -> None:
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(30)


def fall_silent(connection: socket.socket) -> None:
    """Hear whatever is said, and answer nothing."""
    while connection.recv(4096):
        pass


def pass_on(connection: socket.socket, port: int) -> None:
    """Be a way to the server at this port."""
    with socket.create_connection(("127.0.0.1", port)) as onward:
        back = threading.Thread(target=pump, args=(onward, connection))
        back.start()
        pump(connection, onward)
        back.join(30)


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)


def closed_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return int(listening.getsockname()[1])
