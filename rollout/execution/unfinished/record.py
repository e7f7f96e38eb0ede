"""The run's plan on the cluster: a ConfigMap beside the Lease, there from before the first node is touched to the end.

With it, whoever goes on with an interrupted rollout needs nothing but the cluster. A run that ended by itself with
nodes left over leaves it marked as ended: it stands in nobody's way, and can still be gone on with.
"""

import base64
import gzip
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from rollout.errors import ApiConflictError, ApiError, ApiNotFoundError, BlockedError, PlanFileError
from rollout.execution.deadline import Deadline, patiently
from rollout.execution.settle import Health
from rollout.model import marks
from rollout.model.plan import RolloutPlan
from rollout.planning.document import decode_plan, encode_plan
from rollout.ports import Clock, ClusterApi

_PLAN_KEY = "plan.json"
_PACKED_KEY = "plan.json.gz"
_HEALTH_KEY = "health.json"
# A ConfigMap holds a mebibyte in all.
_MOST_PLAIN = 500_000
_MOST_HEALTH = 300_000
_WAYS_OUT = "Go on with it: rollout resume. Or undo what it has begun: rollout abort."


@dataclass(frozen=True, slots=True)
class StandingRecord:
    """A run's record as it was read. `plan` is None where it cannot be understood, and `problem` says why.

    `started_at` is RFC 3339 by the clock of whoever started it; `health` is what was well before the wave that was
    under way, None where that is unknown, or the run came to an end of its own.
    """

    run: str
    started_by: str
    started_at: str
    ended: bool
    plan: RolloutPlan | None
    problem: str = ""
    resource_version: str = ""
    health: Health | None = None


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Meta
    data: dict[str, str] = {}
    binary_data: dict[str, bytes] = {}


def record_path(namespace: str) -> str:
    """Where the record stands."""
    return f"/api/v1/namespaces/{namespace}/configmaps/{marks.LEASE_NAME}"


def read_record(api: ClusterApi, namespace: str) -> StandingRecord | None:
    """The record, or None where there is none; `ApiError` where it cannot be read."""
    path = record_path(namespace)
    try:
        found = msgspec.json.decode(api.get(path), type=_ConfigMap)
    except ApiNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        return StandingRecord("", "", "", ended=False, plan=None, problem=f"{path}: {error}")
    annotations = found.metadata.annotations
    plan, problem = _plan(found, f"the plan in ConfigMap {namespace}/{marks.LEASE_NAME}")
    return StandingRecord(
        run=annotations.get(marks.RUN, ""),
        started_by=annotations.get(marks.STARTED_BY, ""),
        started_at=annotations.get(marks.STARTED_AT, ""),
        ended=annotations.get(marks.ENDED) == "true",
        plan=plan,
        problem=problem,
        resource_version=found.metadata.resource_version,
        health=_health(found),
    )


def _health(found: _ConfigMap) -> Health | None:
    """What cannot be understood is as good as not there: the waves measure anew."""
    try:
        return msgspec.json.decode(found.data.get(_HEALTH_KEY, "null"), type=Health | None)
    except msgspec.MsgspecError:
        return None


def _plan(found: _ConfigMap, origin: str) -> tuple[RolloutPlan | None, str]:
    try:
        return decode_plan(_document(found), origin), ""
    except (PlanFileError, OSError, EOFError) as error:
        return None, str(error)


def _document(found: _ConfigMap) -> bytes:
    if _PACKED_KEY in found.binary_data:
        return gzip.decompress(found.binary_data[_PACKED_KEY])
    return found.data.get(_PLAN_KEY, "").encode()


class RunRecord:
    """Writes and removes the record; `patience` in seconds is how long an absent API server is waited for."""

    def __init__(self, api: ClusterApi, clock: Clock, namespace: str, *, patience: float) -> None:
        self._api = api
        self._clock = clock
        self._namespace = namespace
        self._patience = patience
        self._path = record_path(namespace)

    def begin(self, plan: RolloutPlan, holder: str) -> None:
        """Put the plan on the cluster; `BlockedError` where another run's stands there unfinished.

        A record of this very run stays as it is: it knows of all nodes, where a resumed run knows of the rest.
        """
        body = self._body(plan, holder)
        try:
            self._patiently_create(body)
        except ApiConflictError:
            self._take_place(body, plan.plan_id)

    def _patiently_create(self, body: dict[str, Any]) -> None:
        collection = self._path.rpartition("/")[0]
        patiently(lambda: self._api.create(collection, body), self._deadline)

    def _take_place(self, body: dict[str, Any], run: str) -> None:
        standing = patiently(lambda: read_record(self._api, self._namespace), self._deadline)
        if standing is None:
            self._patiently_create(body)
            return
        if not standing.ended and standing.run != run:
            raise BlockedError(f"the rollout {standing.run} of {standing.started_by} is unfinished", hint=_WAYS_OUT)
        if standing.run == run:
            self._mark_ended(ended=False)
            return
        body["metadata"]["resourceVersion"] = standing.resource_version
        try:
            patiently(lambda: self._api.replace(self._path, body), self._deadline)
        except ApiConflictError:
            # An unanswered attempt of ours may have succeeded; anybody else's record stands in our way.
            after = patiently(lambda: read_record(self._api, self._namespace), self._deadline)
            if after is None or after.run != run:
                raise

    def keep(self, health: Health) -> None:
        """Write down what is well before a wave: whoever goes on after a crash would find it worse already.

        The rollout does not depend on it: where it cannot be written, the waves measure anew.
        """
        written = msgspec.json.encode(health).decode()
        if len(written) > _MOST_HEALTH:
            return
        with suppress(ApiError):
            self._rewrite(lambda body: body.setdefault("data", {}).update({_HEALTH_KEY: written}))

    def end(self, *, complete: bool) -> None:
        """Take it away, or mark it as ended; that it cannot be is no reason to call a finished rollout failed."""
        try:
            if complete:
                patiently(lambda: self._api.delete(self._path), self._deadline)
            else:
                self._mark_ended(ended=True)
        except ApiError:
            return

    def _mark_ended(self, *, ended: bool) -> None:
        """A run that ends by itself tells what is not well; whoever goes on with it accepts that."""

        def mark(body: dict[str, Any]) -> None:
            body["metadata"].setdefault("annotations", {})[marks.ENDED] = "true" if ended else "false"
            if ended:
                body.get("data", {}).pop(_HEALTH_KEY, None)

        self._rewrite(mark)

    def _rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Written as a whole: a rollout needs no right to patch ConfigMaps."""

        def rewrite() -> None:
            body = msgspec.json.decode(self._api.get(self._path), type=dict[str, Any])
            change(body)
            self._api.replace(self._path, body)

        patiently(rewrite, self._deadline)

    @property
    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._patience)

    def _body(self, plan: RolloutPlan, holder: str) -> dict[str, Any]:
        annotations = {
            marks.RUN: plan.plan_id,
            marks.STARTED_BY: holder,
            marks.STARTED_AT: self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        metadata = {"name": marks.LEASE_NAME, "namespace": self._namespace, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **_content(encode_plan(plan))}


def _content(document: bytes) -> dict[str, dict[str, str]]:
    if len(document) <= _MOST_PLAIN:
        return {"data": {_PLAN_KEY: document.decode()}}
    return {"binaryData": {_PACKED_KEY: base64.b64encode(gzip.compress(document, mtime=0)).decode()}}
