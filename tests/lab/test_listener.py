"""Whoever has connected is hung up on when the lab, its API server or a host goes away, however far he has come."""

import gc
import random
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario

Place = tuple[str, int]


class Caller(threading.Thread):
    """Connects all the time, goes a random way into the handshake, and hangs up on nobody."""

    def __init__(self, places: list[Place]) -> None:
        super().__init__()
        self.kept: list[socket.socket] = []
        self._places = places
        self._refused = threading.Event()

    def run(self) -> None:
        draw = random.SystemRandom()
        while not self._refused.is_set():
            with suppress(OSError):
                self.kept.append(socket.create_connection(draw.choice(self._places), timeout=5))
                draw.choice(_GREETINGS)(self.kept[-1])

    def end(self) -> None:
        self._refused.set()
        self.join()


def _silent(_connection: socket.socket) -> None:
    return


def _half_a_hello(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01")


def _ssh_version(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-caller\r\n")


def _client_hello(connection: socket.socket) -> None:
    hello = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    connection.sendall(hello.read())


_GREETINGS: Final = (_silent, _silent, _half_a_hello, _ssh_version, _client_hello)


def hung_up(connection: socket.socket) -> bool:
    """Whether the other side is gone, once everything it has said is read."""
    connection.settimeout(5)
    try:
        while connection.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize("attempt", range(6))
def test_a_lab_that_stops_leaves_no_caller_waiting(attempt: int, tmp_path: Path) -> None:
    with Lab.start(load_scenario("idle"), directory=tmp_path, speed=30) as lab, ExitStack() as opened:
        hosts = [machine.address for machine in lab.machines.values()]
        places = [(lab.api.host, lab.api.port), *((host, lab.ssh_port or 0) for host in hosts)]
        callers = [Caller(places) for _ in range(4)]
        for caller in callers:
            opened.callback(caller.end)
            caller.start()
        time.sleep(0.2 + attempt / 50)
        while not all(len(caller.kept) > 1 for caller in callers):
            time.sleep(0.01)
        lab.stop()
        for caller in callers:
            caller.end()
    kept = [connection for caller in callers for connection in caller.kept]
    assert len(kept) > len(callers)
    with ExitStack() as closed:
        for connection in kept:
            closed.enter_context(connection)
        assert all(hung_up(connection) for connection in kept)
    gc.collect()  # a connection that asyncio has forgotten is told of here, as a warning
