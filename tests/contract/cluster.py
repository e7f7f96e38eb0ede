"""A plain HTTP client of any Kubernetes API server, and what the contract suite makes on it.

Everything it makes has a name of its own and is removed at the end.
"""

import hashlib
import json
import ssl
import tempfile
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import urllib3
import yaml

Json = dict[str, Any]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_FILES = ("certificate-authority", "client-certificate", "client-key")
LABEL = "contract.node-rollout.dev/run"
PATIENCE = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: urllib3.HTTPHeaderDict
    body: Any

    @property
    def items(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Cluster:
    """A connection by kubeconfig; `run` marks everything made by it."""

    def __init__(self, kubeconfig: Path, directory: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        cluster, user = (
            {key: _placed(kubeconfig, key, value) for key, value in each.items()}
            for each in (cluster, user)
        )
        self.url = cluster["server"].rstrip("/")
        self.kubeconfig = kubeconfig
        self.run = uuid4().hex[:8]
        self._authorization = (
            {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        )
        trust = _trust(cluster, directory)
        self._http = urllib3.PoolManager(
            **trust,
            cert_file=_file(user, "client-certificate", directory),
            key_file=_file(user, "client-key", directory),
            retries=False,
            maxsize=4,
        )
        self._undo: list[Callable[[], object]] = []

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        kind: str = "application/json",
        accept: str = "application/json",
        headers: Json | None = None,
        **query: Any,
    ) -> Answer:
        sent = {"Accept": accept, **self._authorization, **(headers or {})}
        payload = None
        if body is not None:
            sent["Content-Type"] = kind
            payload = json.dumps(body).encode()
        url = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        answer = self._http.request(method, url, body=payload, headers=sent)
        text = answer.data.decode()
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return Answer(
            answer.status,
            answer.headers,
            json.loads(text) if is_json and "watch" not in query else text,
        )

    def get(self, path: str, **query: Any) -> Answer:
        return self.send("GET", path, **query)

    @cached_property
    def release(self) -> tuple[int, int]:
        """Major and minor version: clusters of many ages are held to what their version has."""
        found = self.get("/version").body
        return int(found["major"]), int(found["minor"].rstrip("+"))

    @cached_property
    def policy(self) -> str:
        """The version of budgets and evictions that kubectl would use."""
        return "policy/v1" if self.release >= (1, 22) else "policy/v1beta1"

    def make(self, path: str, body: Json) -> Json:
        """Create an object that must be creatable; a namespace's service account may take a moment."""
        answer = self.until(
            lambda: self.send("POST", path, body),
            lambda answer: answer.status != 403 or not path.endswith("/pods"),
        )
        assert answer.status == 201, answer.body
        made: Json = answer.body
        return made

    def patch(self, path: str, body: Any, kind: str = STRATEGIC, **query: Any) -> Answer:
        return self.send("PATCH", path, body, kind=kind, **query)

    @staticmethod
    def until(ask: Callable[[], Answer], done: Callable[[Answer], bool]) -> Answer:
        """Ask until the answer is as wanted or patience is over; the last answer."""
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = ask()
            if done(answer) or time.monotonic() > deadline:
                return answer
            time.sleep(0.2)

    # What the suite makes.

    def name(self, prefix: str) -> str:
        return f"{prefix}-{self.run}-{uuid4().hex[:6]}"

    def namespace(self, name: str = "") -> str:
        name = name or self.name("contract")
        self.make(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
        self.remember(f"/api/v1/namespaces/{name}")
        return name

    def remember(self, path: str) -> None:
        """Have something deleted at the end."""
        self._undo.append(lambda: self.send("DELETE", path))

    def budgets(self, namespace: str) -> str:
        return f"/apis/{self.policy}/namespaces/{namespace}/poddisruptionbudgets"

    def clean_up(self) -> None:
        while self._undo:
            self._undo.pop()()
        self._http.clear()


def _named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _placed(kubeconfig: Path, key: str, value: Any) -> Any:
    """Files are named as seen from the kubeconfig's folder."""
    return str(kubeconfig.parent / value) if key in _FILES else value


def _trust(cluster: Json, directory: Path) -> Json:
    """How the server is known: by its authority; where that is not to be asked, by the certificate
    that it has now.
    """
    if not cluster.get("insecure-skip-tls-verify"):
        return {"ca_certs": _file(cluster, "certificate-authority", directory)}
    where = urlsplit(cluster["server"])
    shown = ssl.get_server_certificate((where.hostname or "", where.port or 443))
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(shown)).hexdigest()
    return {"cert_reqs": ssl.CERT_NONE, "assert_fingerprint": fingerprint}


def _file(section: Json, key: str, directory: Path) -> str | None:
    """A credential as a file, whether the kubeconfig names one or contains its content."""
    if key in section:
        return str(section[key])
    if f"{key}-data" not in section:
        return None
    path = Path(tempfile.mkstemp(dir=directory, prefix=key)[1])
    path.write_bytes(b64decode(section[f"{key}-data"]))
    return str(path)


@contextmanager
def connected(kubeconfig: Path, directory: Path) -> Iterator[Cluster]:
    """A cluster to test, cleaned up afterwards."""
    cluster = Cluster(kubeconfig, directory)
    try:
        yield cluster
    finally:
        cluster.clean_up()
