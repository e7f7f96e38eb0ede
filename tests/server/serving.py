"""The real FleetLock server on a lab, and clients that speak its protocol over a plain connection."""

import datetime as dt
import http.client
import ipaddress
import json
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.hosts.zincati import node_id
from rollout.lab.lab import Lab
from rollout.lab.world.objects import is_daemon, is_mirror, node_name
from tests.ended import start
from tests.state import node_of
from tests.waiting import PATIENCE, Overheard

PRE_REBOOT, STEADY_STATE = "/v1/pre-reboot", "/v1/steady-state"


HEADERS = {"fleet-lock-protocol": "true"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back; `kind` and `value` of a body that is the protocol's."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        return str(json.loads(self.body)["kind"])

    @property
    def value(self) -> str:
        return str(json.loads(self.body)["value"])

    @property
    def granted(self) -> bool:
        """As Zincati reads it."""
        return 200 <= self.status < 300


def body_of(host: str, group: str = "default") -> bytes:
    return json.dumps({"client_params": {"id": host, "group": group}}, indent=2).encode()


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@dataclass
class Server:
    """One replica; `said` is what it has said so far, in all its lives."""

    lab: Lab
    home: Path
    arguments: tuple[str, ...]
    port: int = field(default_factory=free_port)
    context: ssl.SSLContext | None = None
    life: Overheard | None = None
    said: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{'http' if self.context is None else 'https'}://127.0.0.1:{self.port}/"

    def begin(self) -> None:
        words = ("fleetlock", "--listen", f"127.0.0.1:{self.port}", *self.arguments)
        self.hear(start(self.home, self.lab.environment, words))

    def hear(self, process: "subprocess.Popen[str]") -> None:
        """Take a process that was started as this server, and wait until it is ready."""
        self.life = Overheard(process, self.said)
        await_true(lambda: self.is_ready or not self.is_alive, "the server is ready")
        assert self.is_alive, self.said

    def end(self, number: int = signal.SIGTERM) -> int:
        """As Kubernetes ends a pod; or by SIGKILL, as a node that goes down does. Its exit code."""
        assert self.life is not None
        return self.life.end(number)

    @property
    def is_alive(self) -> bool:
        return self.life is not None and self.life.process.poll() is None

    @property
    def is_ready(self) -> bool:
        try:
            return self.request("GET", "/readyz").status == 200
        except OSError:
            return False

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        address, secure = ("127.0.0.1", self.port), self.context
        plain = http.client.HTTPConnection(*address, timeout=PATIENCE)
        connection = (
            plain if secure is None else http.client.HTTPSConnection(*address, timeout=PATIENCE, context=secure)
        )
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): text for name, text in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def ask(self, path: str, node: str, group: str = "default") -> Reply:
        """As the host of this node does."""
        return self.request("POST", path, body_of(host_id(self.lab, node), group), HEADERS)

    def pre_reboot(self, node: str, group: str = "default") -> Reply:
        return self.ask(PRE_REBOOT, node, group)

    def steady_state(self, node: str, group: str = "default") -> Reply:
        return self.ask(STEADY_STATE, node, group)

    def await_grant(self, node: str, group: str = "default") -> Reply:
        return self._await(PRE_REBOOT, node, group)

    def await_release(self, node: str, group: str = "default") -> Reply:
        return self._await(STEADY_STATE, node, group)

    def _await(self, path: str, node: str, group: str) -> Reply:
        replies: list[Reply] = []

        def asked() -> bool:
            replies.append(self.ask(path, node, group))
            return replies[-1].granted

        await_true(asked, f"{path} of {node}", every=0.2, said=lambda: f"{replies[-1].body!r}")
        return replies[-1]


def await_true(
    condition: Callable[[], object],
    what: str,
    *,
    every: float = 0.05,
    seconds: float = PATIENCE,
    said: Callable[[], str] = lambda: "",
) -> None:
    """Wait by the clock; `said` tells what there was instead."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s. {said()}"
        time.sleep(every)


@contextmanager
def serving(lab: Lab, home: Path, *arguments: str, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A replica that is ready; killed in the end. `context` is for one that serves HTTPS."""
    server = Server(lab, home, arguments, context=context)
    server.begin()
    try:
        yield server
    finally:
        if server.is_alive:
            server.end(signal.SIGKILL)


def host_id(lab: Lab, node: str) -> str:
    """By what its host asks."""
    return node_id(lab.machines[node].machine_id)


def is_cordoned(lab: Lab, node: str) -> bool:
    stored = node_of(lab, node)
    return bool(stored["spec"].get("unschedulable"))


def cordoned(lab: Lab) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in lab.call(lambda: lab.store.items(NODES))
        if node["spec"].get("unschedulable")
    }


def left_on(lab: Lab, node: str) -> list[str]:
    """The pods that a drain would have to move."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in lab.call(lambda: list(lab.store.items(PODS)))
        if node_name(pod) == node
        and not (is_daemon(pod) or is_mirror(pod))
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def reboot(lab: Lab, node: str) -> None:
    """As the host does once it may; returns when it is back and its node has reported it."""
    machine, before = lab.machines[node], lab.machines[node].boot_id
    lab.call(machine.reboot)
    await_true(lambda: machine.boot_id != before and machine.running, f"{node} is back")


# Certificates for servers of tests.


def new_certificate(directory: Path, subject: str = "fleetlock") -> tuple[Path, Path]:
    """A certificate for this machine's loopback address, which signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, subject)])
    now = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = directory / "tls.crt", directory / "tls.key"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    return cert_file, key_file
