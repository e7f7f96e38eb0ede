"""Hosts that do their worst: each costs its own answer, little memory and no more than its time."""

import socket
import struct
import sys
import threading
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncssh
import paramiko
import pytest
from msgspec.structs import replace
from paramiko.common import cMSG_KEXINIT

from rollout.adapters.ssh.sockets import DeadlineSocket, connect
from rollout.errors import (
    SshBrokenError,
    SshError,
    SshStalledError,
    SshTimeoutError,
    SshUnreachableError,
)
from tests.adapters.conftest import shell, trusting
from tests.adapters.openssh import MakeStranger, Stranger, closed_port, fall_silent, pass_on

# What the kernel holds of a connection on loopback, both ways, beyond what has been read.
KERNELS = 16 << 20


def test_packet_that_claims_to_be_huge(stranger: MakeStranger, key_file: Path) -> None:
    def huge(it: Stranger, connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-huge\r\n" + struct.pack(">IB", 0x7FFFFFF0, 4))
        it.send_for_ever(connection, b"x" * 65536)

    endless = stranger(huge)
    with pytest.raises(SshError):
        trusting(key_file).run(endless.host, "true", timeout=60)
    assert endless.sent < KERNELS


@pytest.mark.parametrize(
    ("drop", "kind", "hint"),
    [
        (b"", SshTimeoutError, "firewall"),
        (b"S", SshStalledError, "load"),
        (b"SSH-2.0-slow\r\n", SshStalledError, "load"),
    ],
    ids=["nothing", "letter", "banner"],
)
def test_a_byte_a_second(
    stranger: MakeStranger, key_file: Path, drop: bytes, kind: type[SshError], hint: str
) -> None:
    def drip(it: Stranger, connection: socket.socket) -> None:
        connection.sendall(drop)
        if drop:
            it.send_for_ever(connection, b"x", pause=0.3)
        fall_silent(connection)

    slow = stranger(drip)
    started = time.monotonic()
    with pytest.raises(SshTimeoutError, match="while exchanging keys") as caught:
        trusting(key_file).run(replace(slow.host, connect_timeout=1), "true", timeout=60)
    assert time.monotonic() - started < 20
    assert type(caught.value) is kind
    assert hint in caught.value.hint


def test_one_that_hangs_up_is_tried_again_a_few_times(
    stranger: MakeStranger, key_file: Path
) -> None:
    curt = stranger(lambda _it, _connection: None)
    with pytest.raises(SshUnreachableError, match="it closed the connection"):
        trusting(key_file).run(curt.host, "true", timeout=60)
    assert curt.accepted == 5


def test_one_that_greets_and_hangs_up_is_not_silent(stranger: MakeStranger, key_file: Path) -> None:
    leaving = stranger(lambda _, connection: connection.sendall(b"SSH-2.0-stranger\r\n"))
    with pytest.raises(SshBrokenError):
        trusting(key_file).run(leaving.host, "true", timeout=60)


def packet(message: paramiko.Message) -> bytes:
    payload = message.asbytes()
    padding = 16 - (5 + len(payload)) % 8
    return struct.pack(">IB", len(payload) + padding + 1, padding) + payload + bytes(padding)


def test_a_key_of_the_wrong_length_is_an_error_of_ssh(
    stranger: MakeStranger, key_file: Path
) -> None:
    offer = paramiko.Message()
    offer.add_byte(cMSG_KEXINIT)
    offer.add_bytes(bytes(16))
    names = ["curve25519-sha256@libssh.org"], ["ssh-ed25519"], ["aes128-ctr"], ["hmac-sha2-256"]
    kex, key_types, ciphers, digests = names
    for kind in (kex, key_types, ciphers, ciphers, digests, digests, ["none"], ["none"], [], []):
        offer.add_list(kind)
    offer.add_boolean(False)
    offer.add_int(0)
    answer = paramiko.Message()
    answer.add_byte(bytes([31]))
    for part in (b"key", bytes(31), b"signature"):
        answer.add_string(part)

    def agree(_: Stranger, connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-stranger\r\n" + packet(offer))
        time.sleep(0.5)
        connection.sendall(packet(answer))
        fall_silent(connection)

    garbled = stranger(agree)
    with pytest.raises(SshBrokenError, match=r"ValueError.* while exchanging keys"):
        trusting(key_file).run(garbled.host, "true", timeout=30)


@pytest.mark.parametrize(
    "word", [b"", b"Exceeded MaxStartups\r\n", b"Not allowed at this time\r\n"]
)
def test_host_that_is_too_busy_at_first(
    servers: Any, stranger: MakeStranger, client_key: asyncssh.SSHKey, key_file: Path, word: bytes
) -> None:
    server = servers.serve(authorized=[client_key])

    def answer(it: Stranger, connection: socket.socket) -> None:
        if it.accepted <= 2:
            connection.sendall(word)
            return
        pass_on(connection, server.port)

    busy = stranger(answer)
    assert trusting(key_file).run(busy.host, "x", timeout=60).exit_status == 3
    assert busy.accepted == 3


def addresses(*targets: tuple[str, int]) -> list[Any]:
    return [
        (socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "", (a, p))
        for a, p in targets
    ]


def test_addresses_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    # A listener whose queue is full answers no further handshake: as silent as a host behind a
    # firewall.
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    there = socket.create_server(("127.0.0.1", 0))
    with full, there, ExitStack() as fillers:
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        found = addresses(("::1", closed_port()), full.getsockname(), there.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        started = time.monotonic()
        with connect("a.example", 22, started + 12) as stream:
            assert stream.getpeername() == there.getsockname()
        assert time.monotonic() - started < 12


def test_what_a_stranger_says_steers_no_terminal(stranger: MakeStranger, key_file: Path) -> None:
    rude = stranger(lambda _, connection: connection.sendall(b"\x1b]0;mine\x07\x1b[2J\xff\r\n"))
    with pytest.raises(SshUnreachableError) as caught:
        trusting(key_file).run(rude.host, "true", timeout=60)
    assert caught.value.message.isprintable()
    assert "\\x1b]0;mine" in caught.value.message


def test_banner_line_that_never_ends(stranger: MakeStranger, key_file: Path) -> None:
    endless = stranger(lambda it, connection: it.send_for_ever(connection, b"x" * 65536))
    with pytest.raises(SshError, match="sent too much data while exchanging keys"):
        trusting(key_file).run(endless.host, "true", timeout=60)
    assert endless.sent < KERNELS


def test_endless_words_before_the_login(
    servers: Any, client_key: asyncssh.SSHKey, key_file: Path
) -> None:
    def speech(connection: asyncssh.SSHServerConnection) -> None:
        for _ in range(64):
            connection.send_auth_banner("all work and no play\r\n" * 1000)

    server = servers.serve(authorized=[client_key])
    server.on_login = speech
    with pytest.raises(SshError, match="sent too much data while logging in"):
        shell(server, key_file).run(server.host(), "x", timeout=30)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux drops packets to a full queue")
def test_a_host_that_drops_packets_is_tried_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel alone would send the next packet after 3 s."""
    begun = list[float]()

    def begin(stream: DeadlineSocket, target: Any) -> int:
        begun.append(time.monotonic())
        return socket.socket.connect_ex(stream, target)

    monkeypatch.setattr(DeadlineSocket, "connect_ex", begin)
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address, port = server.getsockname()
        stack.enter_context(socket.create_connection((address, port)))
        back = list[float]()

        def come_back() -> None:
            time.sleep(1.15)
            stack.enter_context(server.accept()[0])
            back.append(time.monotonic())

        boot = threading.Thread(target=come_back)
        boot.start()
        stack.enter_context(connect(address, port, time.monotonic() + 10))
        reached = time.monotonic()
        boot.join()
    assert reached - back[0] < 1.2
    assert all(later - earlier > 0.9 for earlier, later in pairwise(begun))
    assert 2 <= len(begun) <= 3
