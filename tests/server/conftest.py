"""FleetLock servers as processes on a lab, and hosts that send requests as Zincati does."""

import datetime as dt
import json
import signal
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rollout.lab.api.resources import CONFIGMAPS, PODS
from rollout.lab.credentials import new_authority
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.objects import is_daemon, is_mirror, node_name
from rollout.lab.scenario import load_scenario
from rollout.model.fleetlock import zincati_id
from tests.apply.conftest import rollout, started  # noqa: F401 - fixtures
from tests.ended import start
from tests.server.in_memory import QUICK, Cluster, Replica, start_replica
from tests.state import node_of
from tests.waiting import Overheard, wait_until

# The cluster has settled after one passing check, and the lock expires soon.
CALM = ("--set", "waves.health-checks=1", "--set", "lock.duration=3s")
SERVE = ("fleetlock", "serve", "--listen", "127.0.0.1:0")
SPOKEN = "serving FleetLock at "
# The program, but for the ten seconds that it waits for a body, or with an answer for the proof of
# a reboot.
IMPATIENT = """
from rollout.server import slot_requests, http
http.BODY_SECONDS = slot_requests._WAIT_SECONDS = 1.0
from rollout.cli.entry import main
main()
"""


@dataclass(frozen=True)
class Answer:
    """An answer: its status, and the kind and the sentence in its body."""

    status: int
    kind: str
    value: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Serving(Overheard):
    """A server's process, and where it listens."""

    url: str = ""
    context: ssl.SSLContext | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.await_words(SPOKEN)
        self.url = next(line.split(SPOKEN)[1].strip() for line in self.said if SPOKEN in line)
        wait_until(lambda: self.get("/readyz")[0] == 200 or self.process.poll() is not None)

    def request(self, path: str, host_id: str, group: str = "default", **headers: str) -> Answer:
        body = json.dumps({"client_params": {"id": host_id, "group": group}}).encode()
        return self.send(path, body, **headers)

    def send(self, path: str, body: bytes, method: str = "POST", **headers: str) -> Answer:
        sent = {
            "fleet-lock-protocol": "true",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        request = urllib.request.Request(self.url + path, body, sent, method=method)  # noqa: S310 - loopback
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.context) as answer:  # noqa: S310 - the same
                return _answer_of(answer.status, answer.read(), dict(answer.headers))
        except urllib.error.HTTPError as error:
            return _answer_of(error.code, error.read(), dict(error.headers))

    def get(self, path: str) -> tuple[int, str]:
        url = self.url.replace("/v1/", path)
        try:
            with urllib.request.urlopen(url, timeout=60, context=self.context) as answer:  # noqa: S310 - loopback
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


def _answer_of(status: int, body: bytes, headers: Mapping[str, str]) -> Answer:
    fields = json.loads(body)
    return Answer(status, fields["kind"], fields["value"], headers)


@dataclass(frozen=True)
class Client:
    """A host of the lab that sends requests as Zincati does; `server` may differ each time."""

    lab: Lab
    node: str

    @property
    def id(self) -> str:
        host_id = zincati_id(self.lab.machines[self.node].machine_id)
        assert host_id
        return host_id

    @property
    def boot_id(self) -> str:
        return str(node_of(self.lab, self.node)["status"]["nodeInfo"]["bootID"])

    def request_reboot(self, server: Serving, group: str = "default") -> Answer:
        return server.request("pre-reboot", self.id, group)

    def report(self, server: Serving, group: str = "default") -> Answer:
        return server.request("steady-state", self.id, group)

    def await_grant(self, server: Serving, seconds: float = 60, group: str = "default") -> Answer:
        return self._await(lambda: self.request_reboot(server, group), seconds)

    def await_return(self, server: Serving, seconds: float = 60) -> Answer:
        return self._await(lambda: self.report(server), seconds)

    def await_drain(self, server: Serving, seconds: float = 90) -> Answer:
        """Request a reboot until the drain of the node has started."""
        return self._await(
            lambda: self.request_reboot(server),
            seconds,
            lambda answer: answer.kind == "waiting_for_drain",
        )

    def _await(
        self,
        request: Callable[[], Answer],
        seconds: float,
        is_awaited: Callable[[Answer], bool] = lambda answer: answer.status == 200,
    ) -> Answer:
        deadline = time.monotonic() + seconds
        while not is_awaited(answer := request()):
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)
        return answer

    def reboot(self) -> None:
        """Reboot as Zincati does after a grant; returns when the kubelet reports the new boot."""
        before = self.boot_id
        self.lab.call(self.lab.machines[self.node].reboot)
        wait_until(lambda: self.boot_id != before)


def slots_of(lab: Lab) -> list[dict[str, Any]]:
    """The slots as they are stored in the cluster."""
    body = lab.call(lambda: lab.store.get(CONFIGMAPS, "node-rollout-fleetlock", "kube-system"))
    return list(json.loads(body["data"]["slots.json"])["held"]) if body else []


def workers(lab: Lab) -> list[str]:
    return sorted(name for name in lab.machines if "worker" in name)


def victim(lab: Lab) -> str:
    """The node of the pod that never ends."""
    pods = lab.call(lambda: lab.store.items(PODS))
    return next(
        str(pod["spec"]["nodeName"])
        for pod in pods
        if pod["metadata"]["name"].startswith("stubborn")
    )


Serve = Callable[..., Serving]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers on a lab; all are killed at the end of the test."""
    with ExitStack() as running:
        yield lambda lab, *arguments: running.enter_context(
            serving(lab, tmp_path, *CALM, *arguments)
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One for all tests of a module: of the protocol and of strangers, who are granted nothing."""
    with Lab(
        scale(load_scenario("default"), 4), directory=tmp_path_factory.mktemp("lab"), speed=120
    ) as running:
        yield running


@pytest.fixture(scope="module")
def server(
    request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    """The server on it, with the module's `FLAGS`, if it has any."""
    flags: Sequence[str] = getattr(request.module, "FLAGS", ())
    with serving(lab, tmp_path_factory.mktemp("home"), *flags) as server:
        yield server
        assert server.end() == 0


# What tests of other folders need of it as well.


@contextmanager
def serving(
    lab: Lab, home: Path, *arguments: str, context: ssl.SSLContext | None = None
) -> Iterator[Serving]:
    """A replica that is ready; killed in the end. `context` is for one that serves HTTPS."""
    process = start(home, lab.environment, (*SERVE, *arguments), script=IMPATIENT)
    server = Serving(process, context=context)
    try:
        yield server
    finally:
        server.end(signal.SIGKILL)


def left_on(lab: Lab, node: str) -> list[str]:
    """The pods that a drain would have to move."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in lab.call(lambda: list(lab.store.items(PODS)))
        if node_name(pod) == node
        and not (is_daemon(pod) or is_mirror(pod))
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
    ]


def new_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for this machine's loopback address, which signs itself."""
    made = new_authority(dt.datetime.now(dt.UTC))
    files = (directory / "tls.crt", directory / "tls.key")
    for file, content in zip(files, (made.certificate, made.server_key), strict=True):
        file.write_bytes(content)
    return files


# Replicas without a wire.


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    for module, constants in QUICK.items():
        for name, value in constants.items():
            monkeypatch.setattr(module, name, value)
    return Cluster()


@pytest.fixture
def replica(cluster: Cluster) -> Iterator[Replica]:
    replica = start_replica(cluster, 1, lambda _notice: None)
    yield replica
    replica.end()
