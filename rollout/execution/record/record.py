"""The run's plan on the cluster: a ConfigMap beside the Lease, there from before the first node is touched to the end.

With it, whoever goes on with an interrupted rollout needs nothing but the cluster. A run that ended by itself with
nodes left over leaves it marked as ended: it stands in nobody's way, and can still be gone on with.
"""

import base64
import gzip
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from rollout.errors import (
    ApiConflictError,
    ApiError,
    ApiNotFoundError,
    BlockedError,
    LockedError,
)
from rollout.execution.base.patience import PatientApi
from rollout.execution.record.memory import swapped
from rollout.execution.record.stored import (
    HEALTH_KEY,
    PACKED_KEY,
    PLAN_KEY,
    Health,
    has_begun,
    read_record,
    record_of,
    record_path,
    whole,
)
from rollout.gather.cluster.snapshot import read_nodes
from rollout.model import marks
from rollout.model.plan import RolloutPlan
from rollout.planning.plan.document import encode_plan, sealed
from rollout.ports import ClusterApi

# A ConfigMap holds a mebibyte in all.
_MOST_PLAIN = 500_000
_MOST_HEALTH = 300_000
_WAYS_OUT = "Go on: rollout resume. Undo what it started: rollout abort."
_WAY_OUT = "Undo what it started and remove its record: rollout abort."


class RunRecord:
    """It is written for a rollout under way. `operating`: for an operating process, else for a person.

    `notice` hears of a record that could not be removed.
    """

    def __init__(
        self, cluster: PatientApi, namespace: str, notice: Callable[[str], None], *, operating: bool = False
    ) -> None:
        self._cluster = cluster
        self._operating = operating
        self._namespace = namespace
        self._notice = notice
        self._origin, self._path = record_of(namespace).origin, record_path(namespace)

    def begin(self, plan: RolloutPlan, holder: str) -> None:
        """Put the plan on the cluster; `BlockedError` where another run's stands there unfinished.

        One that has begun nothing stands in nobody's way. A record of this very run is one whose answer was lost.
        """
        body = self._body(plan, holder)
        try:
            self._patiently_create(body)
        except ApiConflictError:
            swapped(lambda: self._take_place(body, plan.plan_id), self._origin)

    def _patiently_create(self, body: dict[str, Any]) -> None:
        collection = self._path.rpartition("/")[0]
        self._cluster.ask(lambda api: api.create(collection, body))

    def _take_place(self, body: dict[str, Any], run: str) -> None:
        stored = self._cluster.ask(lambda api: read_record(api, self._namespace))
        if stored is None:
            self._patiently_create(body)
            return
        if stored.problem:
            raise BlockedError(f"the record of a rollout is not understood: {stored.problem}", hint=_WAY_OUT)
        if not stored.ended and stored.run != run and has_begun(stored.run, self._cluster.ask(read_nodes)):
            raise LockedError(f"the rollout {stored.run} of {stored.started_by} is unfinished", hint=_WAYS_OUT)
        if stored.run != run:
            metadata = {**body["metadata"], "resourceVersion": stored.resource_version}
            self._cluster.ask(lambda api: api.replace(self._path, {**body, "metadata": metadata}))

    def take_up(self, run: str) -> None:
        """Have it stand as unfinished again, now that the Lease is held; `LockedError` where it is not this run's.

        It stays as it is, but for who works on it: it knows of all nodes, where a process that goes on plans those that
        are left.
        """
        stored = self._cluster.ask(lambda api: read_record(api, self._namespace))
        if stored is None or stored.problem or stored.run != run:
            raise LockedError(
                f"the record of the rollout {run} was changed or removed since it was read",
                hint="See how it stands: rollout status --run.",
            )
        self._mark_ended(ended=False)

    def keep(self, health: Health) -> None:
        """Write down what is well before a wave: whoever goes on after a crash would find it worse already.

        The rollout does not depend on it: where it cannot be written, the waves measure anew.
        """
        written = msgspec.json.encode(health).decode()
        if len(written) > _MOST_HEALTH:
            return
        with suppress(ApiError):
            self._rewrite(lambda body: body.update(data={**(body.get("data") or {}), HEALTH_KEY: written}))

    def end(self, *, complete: bool) -> None:
        """Take it away, or mark it as ended; that it cannot be is no reason to call a finished rollout failed."""
        why = ""
        try:
            if complete:
                self._cluster.ask(lambda api: api.delete(self._path))
                return
        except ApiNotFoundError:
            return
        except ApiError as error:
            why = error.message
        try:
            self._mark_ended(ended=True)
        except ApiNotFoundError:
            return
        except ApiError as error:
            self._notice(f"warning: the record, {self._origin}, stays as of an unfinished rollout: {error.message}")
        else:
            if why:
                self._notice(f"warning: the record stays, as ended: {why}")

    def _mark_ended(self, *, ended: bool) -> None:
        """Forget what was well, too: a run that ends by itself tells it; whoever goes on with it accepts that."""

        def mark(body: dict[str, Any]) -> None:
            annotations = body["metadata"].get("annotations") or {}
            body["metadata"]["annotations"] = {
                **{name: word for name, word in annotations.items() if name != marks.ORIGIN},
                marks.ENDED: "true" if ended else "false",
                **self._origin_mark,
            }
            if ended:
                (body.get("data") or {}).pop(HEALTH_KEY, None)

        self._rewrite(mark)

    def _rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Written as a whole: a rollout needs no right to patch ConfigMaps. What is not understood stays as it is."""

        def rewrite(api: ClusterApi) -> None:
            body = whole(api.get(self._path), self._path)
            change(body)
            api.replace(self._path, body)

        self._cluster.ask(lambda api: swapped(partial(rewrite, api), self._origin))

    @property
    def _origin_mark(self) -> dict[str, str]:
        """Nothing for persons: their records are what they always were."""
        return {marks.ORIGIN: marks.OPERATE} if self._operating else {}

    def _body(self, plan: RolloutPlan, holder: str) -> dict[str, Any]:
        annotations = {
            marks.RUN: plan.plan_id,
            marks.STARTED_BY: holder,
            marks.STARTED_AT: self._cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            **self._origin_mark,
        }
        metadata = {"name": marks.LEASE_NAME, "namespace": self._namespace, "annotations": annotations}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **_content(encode_plan(sealed(plan)))}


def _content(document: bytes) -> dict[str, dict[str, str]]:
    if len(document) <= _MOST_PLAIN:
        return {"data": {PLAN_KEY: document.decode()}}
    return {"binaryData": {PACKED_KEY: base64.b64encode(gzip.compress(document, mtime=0)).decode()}}
