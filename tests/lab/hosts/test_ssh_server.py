"""The hosts over the real wire, asked by another SSH library and by OpenSSH."""

import asyncio
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator

import asyncssh
import paramiko
import pytest

from rollout.gather.hosts.probe_command import PROBE_COMMAND, REBOOT_COMMAND
from rollout.lab.hosts.faults import HostFaults, HostKeyFault, SshFault
from rollout.lab.hosts.machine import Machine
from rollout.lab.hosts.ssh_server import HostServer, new_host_key
from rollout.lab.listener import bind_hosts

MakeMachine = Callable[..., Machine]
CLIENT_KEY = asyncssh.generate_private_key("ssh-ed25519")


class Served:
    """One host being served, and a client for it."""

    def __init__(self, server: HostServer, loop: asyncio.AbstractEventLoop, host_key: asyncssh.SSHKey) -> None:
        self.server = server
        self.machine = server.machine
        self.loop = loop
        self.host_key = host_key

    def in_loop(self, function: Callable[[], object]) -> None:
        async def called() -> None:
            function()

        asyncio.run_coroutine_threadsafe(called(), self.loop).result(30)

    def connect(self, *, user: str = "core", key: asyncssh.SSHKey = CLIENT_KEY) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        known = paramiko.Ed25519Key(data=self.host_key.public_data)
        client.get_host_keys().add(f"[{self.server.address}]:{self.server.port}", "ssh-ed25519", known)
        own = paramiko.Ed25519Key(file_obj=io.StringIO(key.export_private_key().decode()))
        client.connect(
            self.server.address,
            self.server.port,
            user,
            pkey=own,
            allow_agent=False,
            look_for_keys=False,
            timeout=30,
        )
        return client

    def ask(self, command: str) -> tuple[int, str, str]:
        with self.connect() as client:
            return answer_of(client, command)

    def refuses(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.server.address, self.server.port)) != 0


def answer_of(client: paramiko.SSHClient, command: str) -> tuple[int, str, str]:
    _, stdout, stderr = client.exec_command(command, timeout=60)
    out, err = stdout.read().decode("utf-8", "surrogateescape"), stderr.read().decode()
    return stdout.channel.recv_exit_status(), out, err


def until(condition: Callable[[], bool], seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


Serve = Callable[..., Served]


@pytest.fixture
def serve(make_machine: MakeMachine) -> Iterator[Serve]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers: list[HostServer] = []

    async def start(faults: HostFaults, speed: float) -> Served:
        (listening,) = bind_hosts(1)
        host_key = new_host_key()
        server = HostServer(
            make_machine(faults=faults, speed=speed), listening, authorized=CLIENT_KEY, host_key=host_key
        )
        servers.append(server)
        await server.start()
        return Served(server, loop, host_key)

    def started(faults: HostFaults | None = None, *, speed: float = 100) -> Served:
        return asyncio.run_coroutine_threadsafe(start(faults or HostFaults(), speed), loop).result(30)

    async def stop() -> None:
        for server in servers:
            server.machine.stop()
            await asyncio.gather(*server.machine.background, return_exceptions=True)
            await server.close()

    yield started
    asyncio.run_coroutine_threadsafe(stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_command_is_answered(serve: Serve) -> None:
    host = serve()

    assert host.ask("cat /none; systemctl is-active none") == (
        *(4, "inactive\n"),
        "cat: /none: No such file or directory\n",
    )


def test_the_products_probe_is_answered(serve: Serve) -> None:
    host = serve()

    status, out, _ = host.ask(PROBE_COMMAND)

    assert status == 0
    assert "CURRENT_OP=UPDATE_STATUS_UPDATED_NEED_REBOOT" in out
    assert host.machine.boot_id in out
    assert host.machine.machine_id in out


def test_a_reboot_drops_connections_closes_the_port_and_ends(serve: Serve) -> None:
    host = serve(speed=5)
    boot_id = host.machine.boot_id

    with host.connect() as client:
        assert answer_of(client, REBOOT_COMMAND)[0] == 0
        transport = client.get_transport()
        assert transport is not None
        assert transport.is_active()
        assert until(lambda: not transport.is_active())
    assert host.refuses()
    assert until(lambda: not host.refuses())

    status, out, _ = host.ask("cat /proc/sys/kernel/random/boot_id; . /etc/os-release; echo $VERSION")
    assert (status, out) == (0, f"{host.machine.boot_id}\n4152.2.0\n")
    assert host.machine.boot_id != boot_id


def test_a_running_command_is_killed_when_the_host_goes_down(serve: Serve) -> None:
    host = serve(speed=20)

    with host.connect() as client:
        _, stdout, _ = client.exec_command("sleep 600", timeout=60)
        host.in_loop(host.machine.reboot)
        assert stdout.channel.recv_exit_status() == -1


@pytest.mark.parametrize(
    ("user", "key"), [("root", CLIENT_KEY), ("core", asyncssh.generate_private_key("ssh-ed25519"))]
)
def test_only_core_with_the_key_is_admitted(user: str, key: asyncssh.SSHKey, serve: Serve) -> None:
    host = serve()

    with pytest.raises(paramiko.AuthenticationException):
        host.connect(user=user, key=key)


def test_a_closed_port_refuses_and_can_open_later(serve: Serve) -> None:
    host = serve(HostFaults(ssh=SshFault.CLOSED))
    assert host.refuses()

    host.in_loop(lambda: host.machine.inflict(HostFaults()))
    assert until(lambda: not host.refuses())
    assert host.ask("true")[0] == 0

    host.in_loop(lambda: host.machine.inflict(HostFaults(ssh=SshFault.CLOSED)))
    assert host.refuses()


def test_a_host_key_that_changes_at_reboot(serve: Serve) -> None:
    host = serve(HostFaults(host_key=HostKeyFault.CHANGES_AT_REBOOT), speed=200)
    assert host.ask("sudo -n systemctl reboot")[0] == 0
    assert until(lambda: host.machine.reboots == 1 and not host.refuses())

    with pytest.raises(paramiko.BadHostKeyException):
        host.connect()
