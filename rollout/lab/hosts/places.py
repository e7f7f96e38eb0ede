"""Where the simulated hosts listen: always on loopback.

On Linux every address of 127.0.0.0/8 works without set-up, so that each host gets an address of its own and all
share one port, as real hosts do. Elsewhere all share 127.0.0.1 and each gets a port.
"""

import ipaddress
import random
import socket
from contextlib import ExitStack
from typing import Final

_BACKLOG: Final = 128
_TRIES: Final = 20
_FIRST_NETWORK, _LAST_NETWORK = 64, 254


def bind_hosts(count: int) -> list[socket.socket]:
    """One listening socket a host; raises OSError where loopback has no room.

    The networks are drawn at random, so that several labs on one machine rarely meet; where they do, the next
    draw decides.
    """
    try:
        return _bind_addresses(count)
    except OSError:
        return [open_socket("127.0.0.1", 0) for _ in range(count)]


def open_socket(address: str, port: int) -> socket.socket:
    """A listening socket; reopening one that was just closed must work, hence the reuse of addresses."""
    return socket.create_server((address, port), backlog=_BACKLOG, reuse_port=False)


def _bind_addresses(count: int) -> list[socket.socket]:
    draw = random.SystemRandom()
    failure = OSError("no loopback network is free")
    for _ in range(_TRIES):
        network = ipaddress.IPv4Address(f"127.{draw.randint(_FIRST_NETWORK, _LAST_NETWORK)}.0.0")
        try:
            return _bind_network(network, count)
        except OSError as error:
            failure = error
    raise failure


def _bind_network(network: ipaddress.IPv4Address, count: int) -> list[socket.socket]:
    """All addresses of one network on the port that the first of them was given."""
    with ExitStack() as opened:
        port, sockets = 0, list[socket.socket]()
        for index in range(1, count + 1):
            bound = opened.enter_context(open_socket(str(network + index), port))
            port = bound.getsockname()[1]
            sockets.append(bound)
        opened.pop_all()
        return sockets
