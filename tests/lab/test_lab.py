"""The lab as a whole, over HTTPS and SSH, as any client would use it."""

import base64
import gc
import json
import random
import re
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import paramiko
import pytest
import urllib3
import yaml

from rollout.errors import InputError
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario

StartLab = Callable[..., Lab]


class Client:
    """A client that knows what stands in a kubeconfig and nothing else."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.url = cluster["server"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.http = urllib3.PoolManager(
            ca_cert_data=authority, headers={"Authorization": f"Bearer {user['token']}"}, retries=False
        )

    def get(self, path: str) -> Any:
        answer = self.http.request("GET", self.url + path)
        assert answer.status == 200, answer.data
        return json.loads(answer.data)

    def items(self, path: str) -> list[dict[str, Any]]:
        return list(self.get(path)["items"])

    def close(self) -> None:
        self.http.clear()


def ready(node: dict[str, Any]) -> str:
    return next(str(each["status"]) for each in node["status"]["conditions"] if each["type"] == "Ready")


def until(condition: Callable[[], bool], seconds: float = 15) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def ssh(lab: Lab, name: str, command: str) -> tuple[int, str]:
    inventory = yaml.safe_load(lab.inventory.read_text())["all"]
    hosts = {host: where for group in inventory["children"].values() for host, where in group["hosts"].items()}
    with paramiko.SSHClient() as client:
        client.load_host_keys(str(lab.known_hosts))
        client.connect(
            hosts[name]["ansible_host"],
            hosts[name]["ansible_port"],
            inventory["vars"]["ansible_user"],
            key_filename=inventory["vars"]["ansible_ssh_private_key_file"],
            allow_agent=False,
            look_for_keys=False,
            timeout=5,
        )
        _, stdout, _ = client.exec_command(command, timeout=60)
        return stdout.channel.recv_exit_status(), stdout.read().decode()


def test_a_client_meets_a_settled_cluster(start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=6)
    client = Client(lab.kubeconfig)

    nodes, pods = client.items("/api/v1/nodes"), client.items("/api/v1/pods")

    assert [node["metadata"]["name"] for node in nodes] == ["cp-1", "cp-2", "cp-3", "worker-1", "worker-2", "worker-3"]
    assert {ready(node) for node in nodes} == {"True"}
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    for budget in client.items("/apis/policy/v1/poddisruptionbudgets"):
        assert budget["status"]["disruptionsAllowed"] >= 1, budget["metadata"]["name"]
    client.close()


def test_hosts_and_nodes_agree(start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=2)
    client = Client(lab.kubeconfig)
    node = client.get("/api/v1/nodes/worker-1")

    status, out = ssh(lab, "worker-1", "cat /proc/sys/kernel/random/boot_id /etc/machine-id")

    info = node["status"]["nodeInfo"]
    assert (status, out.split()) == (0, [info["bootID"], info["machineID"]])
    assert node["status"]["addresses"][0]["address"] == lab.machines["worker-1"].address
    client.close()


def test_a_reboot_over_ssh_changes_the_node(start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=3, speed=50)
    client = Client(lab.kubeconfig)
    before = client.get("/api/v1/nodes/worker-1")["status"]["nodeInfo"]

    assert ssh(lab, "worker-1", "sudo -n systemctl reboot")[0] == 0

    def back() -> bool:
        node = client.get("/api/v1/nodes/worker-1")
        return ready(node) == "True" and node["status"]["nodeInfo"]["bootID"] != before["bootID"]

    assert until(back)
    assert "4152.2.0" in client.get("/api/v1/nodes/worker-1")["status"]["nodeInfo"]["osImage"]
    assert "UPDATE_STATUS_IDLE" in ssh(lab, "worker-1", "update_engine_client -status")[1]
    scores = lab.scoreboard()
    assert scores.reboots["worker-1"] == 1
    assert scores.killed, "nobody had drained it"
    client.close()


def test_the_files_are_private_and_complete(start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=2)

    assert sorted(path.name for path in lab.directory.iterdir()) == [
        "id_ed25519",
        "id_ed25519.pub",
        "inventory.yaml",
        "known_hosts",
        "kubeconfig",
    ]
    for path in (lab.key, lab.kubeconfig):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert lab.environment["KUBECONFIG"] == str(lab.kubeconfig)
    assert set(lab.environment) - {"ROLLOUT_SSH_PORT", "ROLLOUT_INVENTORY"} == {
        "KUBECONFIG",
        "ROLLOUT_SSH_KEY",
        "ROLLOUT_KNOWN_HOSTS",
        "ROLLOUT_SSH_CONFIG",
        "ANSIBLE_SSH_COMMON_ARGS",
    }
    inventory = yaml.safe_load(lab.inventory.read_text())
    assert set(inventory["all"]["children"]) == {"control_plane", "worker"}
    lines = lab.known_hosts.read_text().splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"\[127\.\d+\.\d+\.\d+\]:\d+ ssh-ed25519 \S+", line) for line in lines)


def test_a_wrong_host_key_is_wrong_in_known_hosts_only(start_lab: StartLab) -> None:
    lab = start_lab("wrong-host-key", nodes=3)

    with pytest.raises(paramiko.BadHostKeyException):
        ssh(lab, "worker-2", "true")
    assert ssh(lab, "worker-1", "true")[0] == 0


def test_api_faults_of_the_scenario_strike(start_lab: StartLab) -> None:
    lab = start_lab("api-500", nodes=3)
    client = Client(lab.kubeconfig)

    statuses = {client.http.request("GET", f"{client.url}/api/v1/nodes/cp-1").status for _ in range(120)}

    assert statuses == {200, 500}
    client.close()


def open_sockets() -> set[str]:
    folder = Path("/proc/self/fd")
    links = (str(path.readlink()) for path in folder.iterdir() if path.exists())
    return {link for link in links if link.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_stopping_leaves_nothing(tmp_path: Path) -> None:
    gc.collect()
    sockets, threads = open_sockets(), set(threading.enumerate())
    lab = Lab.start(load_scenario("default"), directory=tmp_path, speed=20)
    address, port = lab.machines["worker-1"].address, lab.ssh_port
    client = Client(lab.kubeconfig)
    client.items("/api/v1/nodes")
    lab.call(lab.machines["worker-2"].reboot)

    lab.stop()
    lab.stop()

    client.close()
    gc.collect()
    # Threads of servers from before may end meanwhile.
    assert (open_sockets() - sockets, set(threading.enumerate()) - threads) == (set(), set())
    with socket.socket() as probe:
        assert probe.connect_ex((address, port or 0)) != 0


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match="cannot use"):
        Lab.start(load_scenario("default"), directory=tmp_path / "file" / "lab")


def test_the_command_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rollout", "lab", "up", "--nodes", "2", "--dir", str(tmp_path / "a lab")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        exports = [process.stdout.readline() for _ in range(4)]
        client = Client(tmp_path / "a lab" / "kubeconfig")
        assert len(client.items("/api/v1/nodes")) == 2
        client.close()
        process.terminate()
        out, err = process.communicate(timeout=100)

    assert exports[0] == f"export KUBECONFIG='{tmp_path}/a lab/kubeconfig'\n"
    assert all(line.startswith("export ROLLOUT_") for line in exports[1:])
    assert (tmp_path / "a lab" / "env").read_text(encoding="utf-8").splitlines(keepends=True)[:4] == exports
    assert f". '{tmp_path}/a lab/env'" in err
    assert "Clean" in out
    assert "rollout apply" in err
    assert process.returncode == 0


# Whoever has connected is hung up on when the lab, its API server or a host goes away, however far he has come.


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
