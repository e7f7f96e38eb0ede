"""An HTTP server that misbehaves on demand: what no well-made API server can be brought to do."""

import copy
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rollout.adapters.kube.api import KubeApi, Timeouts, connect

Json = dict[str, Any]


KINDS = {
    "cephclusters": "CephCluster",
    "configmaps": "ConfigMap",
    "daemonsets": "DaemonSet",
    "deployments": "Deployment",
    "events": "Event",
    "jobs": "Job",
    "leases": "Lease",
    "namespaces": "Namespace",
    "nodemaintenanceplans": "NodeMaintenancePlan",
    "nodemaintenances": "NodeMaintenance",
    "nodes": "Node",
    "persistentvolumes": "PersistentVolume",
    "plans": "Plan",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "pods": "Pod",
    "replicasets": "ReplicaSet",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "statefulsets": "StatefulSet",
    "volumeattachments": "VolumeAttachment",
}


class Exchange(BaseHTTPRequestHandler):
    """One request, and the ways to answer it."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: "ScriptedServer"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.payload = self.rfile.read(length)
        self.split = urlsplit(self.path)
        self.query = {key: values[0] for key, values in parse_qs(self.split.query).items()}
        self.server.exchanges.append(copy.copy(self))
        self.server.script(self)
        self.wfile.flush()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class's names

    def answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def json(self, body: object, status: int = 200, **headers: str) -> None:
        """Answer with a body, of the kind that was asked for where it names none."""
        told = (
            {**self._kind(), **body}
            if isinstance(body, dict) and status in range(200, 300)
            else body
        )
        self.answer(status, json.dumps(told).encode(), Content_Type="application/json", **headers)

    def _kind(self) -> Json:
        match self.split.path.strip("/").split("/"):
            case ["api", _]:
                return {"kind": "APIResourceList", "apiVersion": "v1"}
            case ["api", version, *rest] if rest:
                return {"kind": self._named(rest), "apiVersion": version}
            case ["apis", group, version, *rest] if rest:
                return {"kind": self._named(rest), "apiVersion": f"{group}/{version}"}
            case _:
                return {}

    def _named(self, parts: list[str]) -> str:
        resource, *name = parts[2:] if parts[0] == "namespaces" and len(parts) > 2 else parts
        if name[1:] == ["eviction"]:
            return "Eviction"
        return KINDS.get(resource, "") + ("List" if self.command == "GET" and not name else "")

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def line(self, body: object) -> None:
        self.piece(json.dumps(body).encode() + b"\n")

    def piece(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def wait(self) -> None:
        """Say nothing more until the server stops."""
        self.server.over.wait()
        self.close_connection = True

    def reset(self) -> None:
        """Break the connection, without any farewell."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        socket.close(self.connection.detach())
        self.close_connection = True
        self.wfile = self.rfile = open("/dev/null", "w+b", buffering=0)  # type: ignore[assignment]  # noqa: PTH123, SIM115

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


class ScriptedServer(ThreadingHTTPServer):
    """Hands every request to `script`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, script: Callable[[Exchange], None], context: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Exchange)
        self.script = script
        self.exchanges: list[Exchange] = []
        self.over = threading.Event()
        self.scheme = "http"
        if context is not None:
            self.scheme = "https"
            self.socket = context.wrap_socket(
                self.socket, server_side=True, do_handshake_on_connect=False
            )

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:
        """Clients that leave are part of the script."""


@contextmanager
def scripted(
    script: Callable[[Exchange], None], context: ssl.SSLContext | None = None
) -> Iterator[ScriptedServer]:
    """Serve until the context is left."""
    server = ScriptedServer(script, context)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Kubeconfig:
    """A kubeconfig to write, with one context; change what a test is about."""

    server: str = "https://127.0.0.1:1"
    cluster: Json = field(default_factory=dict)
    user: Json = field(default_factory=lambda: {"token": "secret"})

    def document(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.server, **self.cluster}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": self.user}],
            "current-context": "x",
        }

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.document()))
        return path


# A client of a scripted API server, which waits for nothing as long as one of a real server.


QUICK = Timeouts(connect=2, read=0.5)


def client(tmp_path: Path, url: str, timeouts: Timeouts = QUICK) -> KubeApi:
    """One whose credentials stand in a kubeconfig of its own."""
    return connect(Kubeconfig(url).write(tmp_path / "kubeconfig"), None, timeouts=timeouts)
