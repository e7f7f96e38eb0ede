"""A real control plane on loopback: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

The four programs are taken from the folder that ROLLOUT_CONTROL_PLANE names, else from PATH.
"""

import contextlib
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import yaml

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
# Of the administrator.
TOKEN = "administrator"


def missing() -> str:
    """Which programs are not here; empty if all are."""
    return ", ".join(name for name in PROGRAMS if _program(name) is None)


@dataclass(frozen=True)
class ControlPlane:
    """Where it listens, and a kubeconfig of its administrator."""

    url: str
    authority: Path
    kubeconfig: Path


@contextlib.contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    """Run the four programs for as long as the context lasts, with all data in this folder."""
    with api_server(directory) as plane, contextlib.ExitStack() as stack:
        stack.enter_context(_running(directory, _controllers(plane, _key(directory))))
        stack.enter_context(_running(directory, _scheduler(plane)))
        yield plane


@contextlib.contextmanager
def api_server(
    directory: Path, fill: Callable[[str], object] = lambda _url: None
) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver alone, which change no object by themselves.

    `fill` may write to etcd, at this URL, before kube-apiserver starts.
    """
    store = _free_port()
    peers = _free_port()
    port = _free_port()
    key = _key(directory)
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    (directory / "tokens.csv").write_text(f"{TOKEN},administrator,1,system:masters\n")
    plane = ControlPlane(
        url=f"https://127.0.0.1:{port}",
        authority=directory / "certificates" / "apiserver.crt",
        kubeconfig=directory / "kubeconfig",
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_running(directory, _etcd(directory, store, peers)))
        fill(f"http://127.0.0.1:{store}")
        stack.enter_context(_running(directory, _api_server(directory, store, port, key)))
        _wait_until_ready(plane, port)
        plane.kubeconfig.write_text(kubeconfig_of(plane, TOKEN))
        yield plane


def _key(directory: Path) -> Path:
    return directory / "service-accounts.key"


def kubeconfig_of(plane: ControlPlane, token: str) -> str:
    """A kubeconfig that logs in with this bearer token."""
    cluster = {"server": plane.url, "certificate-authority": str(plane.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "real", "cluster": cluster}],
        "users": [{"name": "real", "user": {"token": token}}],
        "contexts": [{"name": "real", "context": {"cluster": "real", "user": "real"}}],
        "current-context": "real",
    }
    return yaml.safe_dump(config)


def _etcd(directory: Path, port: int, peers: int) -> Sequence[str]:
    client = f"http://127.0.0.1:{port}"
    peer = f"http://127.0.0.1:{peers}"
    return (
        *("etcd", f"--data-dir={directory / 'etcd'}", f"--listen-client-urls={client}"),
        *(f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}"),
        *(f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
        "--unsafe-no-fsync",
    )


def _api_server(directory: Path, store: int, port: int, key: Path) -> Sequence[str]:
    return (
        *("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1"),
        *(f"--secure-port={port}", f"--cert-dir={directory / 'certificates'}"),
        "--service-account-issuer=https://kubernetes.default.svc",
        *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
        *(f"--token-auth-file={directory / 'tokens.csv'}", "--authorization-mode=RBAC"),
        *("--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true"),
    )


def _controllers(plane: ControlPlane, key: Path) -> Sequence[str]:
    return (
        *("kube-controller-manager", f"--kubeconfig={plane.kubeconfig}"),
        *(f"--service-account-private-key-file={key}", "--leader-elect=false", "--secure-port=0"),
        *("--node-monitor-period=1s", "--node-monitor-grace-period=8s"),
    )


def _scheduler(plane: ControlPlane) -> Sequence[str]:
    return (
        *("kube-scheduler", f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false"),
        "--secure-port=0",
    )


@contextlib.contextmanager
def _running(directory: Path, command: Sequence[str]) -> Iterator[None]:
    name, *arguments = command
    program = _program(name)
    assert program is not None
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _program(name: str) -> str | None:
    folder = os.environ.get("ROLLOUT_CONTROL_PLANE")
    return shutil.which(name, path=folder) if folder else shutil.which(name)


def _wait_until_ready(plane: ControlPlane, port: int) -> None:
    deadline = time.monotonic() + 120
    while not _is_ready(plane, port):
        if time.monotonic() > deadline:
            raise TimeoutError("kube-apiserver is not ready")
        time.sleep(0.2)


def _is_ready(plane: ControlPlane, port: int) -> bool:
    try:
        trust = ssl.create_default_context(cafile=plane.authority)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trust)
        with contextlib.closing(connection):
            connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
            return connection.getresponse().status == HTTPStatus.OK
    except OSError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
