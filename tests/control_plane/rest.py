"""Requests to the API server, as JSON in and out."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import urllib3
import yaml

from tests.control_plane.servers import TOKEN, ControlPlane

_MERGE = "application/merge-patch+json"


class RefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@contextlib.contextmanager
def requests_to(plane: ControlPlane) -> Iterator["Rest"]:
    """The administrator's requests, for as long as the context lasts."""
    with urllib3.PoolManager(ca_certs=str(plane.authority), maxsize=10) as pool:
        yield Rest(plane.url, pool)


class Rest:
    """`RefusedError` if the server refuses a request."""

    def __init__(self, url: str, pool: urllib3.PoolManager) -> None:
        self._url = url
        self._pool = pool

    def get(self, path: str) -> Any:
        """Read an object or a list."""
        return self._call("GET", path)

    def items(self, path: str) -> list[Any]:
        """The objects of a list."""
        items: list[Any] = self.get(path)["items"]
        return items

    def post(self, path: str, body: Any) -> Any:
        """Create an object."""
        return self._call("POST", path, body)

    def patch(self, path: str, body: Any) -> None:
        """Merge fields into an object."""
        self._call("PATCH", path, body, _MERGE)

    def delete(self, path: str, body: Any = None) -> None:
        """Delete an object."""
        self._call("DELETE", path, body)

    def create_all(self, text: str) -> None:
        """Create the objects of a YAML text."""
        for document in yaml.safe_load_all(text):
            if document:
                self.post(self._path_of(document), document)

    def _path_of(self, document: Any) -> str:
        version = document["apiVersion"]
        base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
        kinds = self.get(base)["resources"]
        kind = next(
            each for each in kinds if each["kind"] == document["kind"] and "/" not in each["name"]
        )
        if kind["namespaced"]:
            return f"{base}/namespaces/{document['metadata']['namespace']}/{kind['name']}"
        return f"{base}/{kind['name']}"

    def _call(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._url + path, body=data, headers=headers)
        if answer.status >= 400:
            raise RefusedError(answer.status, answer.data.decode())
        return answer.json()
