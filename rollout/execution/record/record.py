"""A rollout's record: its plan in a ConfigMap, to continue from any machine.

It blocks other rollouts until it is marked as ended. A record that is not completely understood is
not used, because others may write ConfigMaps.
"""

import base64
import gzip
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rollout.errors import ApiError, ApiNotFoundError, BlockedError, LockedError, PlanFileError
from rollout.execution.base.deadline import PatientApi
from rollout.execution.record.compare_and_swap import compare_and_swap
from rollout.gather.cluster.documents import Document, NotUnderstoodError
from rollout.gather.cluster.snapshot import read_nodes
from rollout.gather.cluster.workloads import Workload
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.node_marks import has_marks, last_result
from rollout.model.plan import RolloutPlan
from rollout.model.policy import Policy
from rollout.model.text import is_run_id
from rollout.model.timestamps import whole_second
from rollout.planning.plan.document import LARGEST_DOCUMENT, decode_plan, encode_plan, with_id
from rollout.planning.plan.joining import with_timeouts_of
from rollout.ports import ClusterApi

PLAN_KEY = "plan.json"
PACKED_PLAN_KEY = "plan.json.gz"
HEALTH_KEY = "health.json"
_LONGEST_EXCERPT = 200
# zlib adds 16 to expect a gzip header.
_GZIP = 16 + zlib.MAX_WBITS


class Health(Struct, frozen=True):
    """Health before a wave: its nodes' workloads by UID, and the Ready nodes."""

    workloads: Mapping[str, Workload]
    ready_nodes: frozenset[str]

    @classmethod
    def of_all(cls, measurements: "Iterable[Health]") -> "Health":
        workloads: dict[str, Workload] = {}
        ready_nodes: set[str] = set()
        for health in measurements:
            # A workload's first measurement counts.
            workloads = {**health.workloads, **workloads}
            ready_nodes |= health.ready_nodes
        return cls(workloads, frozenset(ready_nodes))


class _StoredWave(msgspec.Struct):
    """`wave` is 0 if unknown."""

    workloads: Mapping[str, Workload] = {}
    ready_nodes: frozenset[str] = frozenset()
    wave: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0

    @property
    def health(self) -> Health | None:
        if not (self.workloads or self.ready_nodes):
            return None
        return Health(self.workloads, self.ready_nodes)


class StoredRecord(Struct, frozen=True):
    run_id: str = ""
    started_by: str = ""
    # By the starting process's clock.
    started_at: str = ""
    ended: bool = False
    plan: RolloutPlan | None = None
    # Why the record is not understood; then `plan` and `health` are None.
    problem: str = ""
    resource_version: str = ""
    # Before the wave in flight.
    health: Health | None = None
    last_wave: int = 0
    # Only marks on Nodes imply this record.
    is_missing: bool = False
    stopped: bool = False
    # `rollout operate` started the rollout or last continued it.
    unattended: bool = False


class _RecordMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _RecordMeta
    data: dict[str, str] | None = None
    binary_data: dict[str, bytes] | None = None

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def keys(self) -> frozenset[str]:
        return frozenset({*(self.data or {}), *(self.binary_data or {})})


def may_have_begun(run_id: str, nodes: Iterable[Node]) -> bool:
    """Marks of any rollout count."""
    return any(has_marks(node) or last_result(node).get("run") == run_id for node in nodes)


def record_document(namespace: str) -> Document:
    return Document(namespace, marks.RECORD_NAME, PLAN_KEY)


def read_record(api: ClusterApi, namespace: str) -> StoredRecord | None:
    """None without a record; one that is not understood has a `problem`."""
    document = record_document(namespace)
    try:
        config_map = document.read(api).config_map
        if config_map is None:
            return None
        return _decode_record(msgspec.convert(config_map, type=_ConfigMap), document.origin)
    except NotUnderstoodError as error:
        problem = error.message
    except DECODE_ERRORS as error:
        problem = f"{document.origin}: {str(error)[:_LONGEST_EXCERPT]}"
    return StoredRecord(problem=problem)


def _decode_record(config_map: _ConfigMap, origin: str) -> StoredRecord:
    """Annotations count even if the rest is not understood."""
    run_id = config_map.annotations.get(marks.RUN, "")
    problem = ""
    plan: RolloutPlan | None = None
    wave = _StoredWave()
    try:
        _check_annotations(config_map.annotations)
        _check_keys(config_map)
        plan = _decode_plan(config_map, run_id)
        wave = _decode_last_wave(config_map)
    except NotUnderstoodError as error:
        plan = None
        problem = f"{origin}: {error.message}"
    return StoredRecord(
        run_id=run_id if is_run_id(run_id) else "",
        started_by=config_map.annotations.get(marks.STARTED_BY, ""),
        started_at=config_map.annotations.get(marks.STARTED_AT, ""),
        ended=config_map.annotations.get(marks.ENDED) == "true",
        stopped=config_map.annotations.get(marks.STOPPED) == "true",
        plan=plan,
        problem=problem,
        resource_version=config_map.metadata.resource_version,
        health=wave.health,
        last_wave=wave.wave,
        unattended=config_map.annotations.get(marks.ORIGIN) == marks.OPERATE,
    )


def _check_annotations(annotations: dict[str, str]) -> None:
    ours = {name for name in annotations if name.startswith(marks.PREFIX)}
    unknown = sorted(ours - set(marks.ON_RECORD))
    if unknown:
        raise NotUnderstoodError(
            f"its annotation {unknown[0][:_LONGEST_EXCERPT]} is unknown to this version of rollout"
        )
    run_id = annotations.get(marks.RUN, "")
    if not is_run_id(run_id):
        raise NotUnderstoodError(f"{run_id[:_LONGEST_EXCERPT]!r} is not a rollout ID")
    booleans = ("true", "false")
    allowed = {
        marks.ENDED: booleans,
        marks.STOPPED: booleans,
        marks.ORIGIN: (marks.OPERATE,),
    }
    for name, allowed_values in allowed.items():
        value = annotations.get(name)
        if value is not None and value not in allowed_values:
            raise NotUnderstoodError(f"its annotation {name} is {value[:_LONGEST_EXCERPT]!r}")


def _check_keys(config_map: _ConfigMap) -> None:
    unknown = sorted(config_map.keys - {PLAN_KEY, PACKED_PLAN_KEY, HEALTH_KEY})
    if unknown:
        raise NotUnderstoodError(
            f"its key {unknown[0][:_LONGEST_EXCERPT]!r} is unknown to this version of rollout"
        )
    has_two_plans = PLAN_KEY in config_map.keys and PACKED_PLAN_KEY in config_map.keys
    if has_two_plans:
        raise NotUnderstoodError("it contains two plans")


def _decode_last_wave(config_map: _ConfigMap) -> _StoredWave:
    # Without its health, the next wave would not wait for workloads.
    try:
        wave = msgspec.json.decode((config_map.data or {}).get(HEALTH_KEY, "{}"), type=_StoredWave)
    except DECODE_ERRORS as error:
        raise NotUnderstoodError(
            f"its health before the wave, {HEALTH_KEY}: {str(error)[:_LONGEST_EXCERPT]}"
        ) from error
    for workload in wave.workloads.values():
        if not workload.has_valid_names:
            raise NotUnderstoodError(
                f"{HEALTH_KEY}: {workload.key[:_LONGEST_EXCERPT]!r} is not a workload name"
            )
    return wave


def _decode_plan(config_map: _ConfigMap, run_id: str) -> RolloutPlan:
    packed = (config_map.binary_data or {}).get(PACKED_PLAN_KEY)
    document = (config_map.data or {}).get(PLAN_KEY, "").encode()
    if packed is not None:
        document = _unpack(packed)
    try:
        # The Nodes' marks have this ID, whatever the plan says.
        return replace(decode_plan(document, "its plan"), plan_id=run_id)
    except PlanFileError as error:
        raise NotUnderstoodError(error.message) from error


def _unpack(packed: bytes) -> bytes:
    """Unpack at most one plan's length: a few bytes may become gigabytes."""
    unpacking = zlib.decompressobj(_GZIP)
    try:
        document = unpacking.decompress(packed, LARGEST_DOCUMENT + 1)
    except zlib.error as error:
        raise NotUnderstoodError(f"{PACKED_PLAN_KEY}: {error}") from error
    if len(document) > LARGEST_DOCUMENT:
        raise NotUnderstoodError(f"its plan is larger than {LARGEST_DOCUMENT >> 20} MiB, unpacked")
    if not unpacking.eof or unpacking.unused_data:
        raise NotUnderstoodError(f"{PACKED_PLAN_KEY} is truncated, or has trailing data")
    return document


# Bytes; a ConfigMap holds 1 MiB.
_MOST_PLAIN = 500_000
_MOST_HEALTH = 300_000
_CONTINUE_OR_UNDO = "Continue it: rollout resume. Undo what it began: rollout abort."
_UNDO = "Undo what it began and remove its record: rollout abort."


@dataclass
class RunRecord:
    """Writes the record of this rollout.

    An ended record of another rollout is replaced only when the first node starts: until then, the
    new record is deferred.
    """

    cluster: PatientApi
    document: Document
    notice: Callable[[str], None]
    unattended: bool = False
    _deferred: dict[str, Any] | None = field(default=None, init=False)
    _last_wave: int = field(default=0, init=False)

    def write_or_defer(self, plan: RolloutPlan, holder: str) -> None:
        body = self._body(plan, holder)
        compare_and_swap(lambda: self._create_or_defer(body, plan.plan_id), self.document.origin)

    def write_deferred(self, run_id: str) -> None:
        body = self._deferred
        if body is not None:
            compare_and_swap(lambda: self._create_or_replace(body, run_id), self.document.origin)
            self._deferred = None

    def _create_or_defer(self, body: dict[str, Any], run_id: str) -> None:
        stored = self._read_stored()
        if stored is None:
            self._create(body)
            return
        self._require_replaceable(stored, run_id)
        # The answer to an earlier write may have been lost.
        is_ours = stored.run_id == run_id
        if not is_ours:
            self._deferred = body

    def _create_or_replace(self, body: dict[str, Any], run_id: str) -> None:
        stored = self._read_stored()
        if stored is None:
            self._create(body)
            return
        self._require_replaceable(stored, run_id)
        # The answer to an earlier write may have been lost.
        is_ours = stored.run_id == run_id
        if not is_ours:
            metadata = {**body["metadata"], "resourceVersion": stored.resource_version}
            replacement = {**body, "metadata": metadata}
            self.cluster.ask(lambda api: api.replace(self.document.path, replacement))

    def _read_stored(self) -> StoredRecord | None:
        return self.cluster.ask(lambda api: read_record(api, self.document.namespace))

    def _create(self, body: dict[str, Any]) -> None:
        self.cluster.ask(lambda api: api.create(self.document.collection, body))

    def _require_replaceable(self, stored: StoredRecord, run_id: str) -> None:
        if stored.problem:
            raise BlockedError(
                f"the record of a rollout cannot be used: {stored.problem}", hint=_UNDO
            )
        if stored.run_id == run_id or stored.ended:
            return
        if may_have_begun(stored.run_id, self.cluster.ask(read_nodes)):
            raise LockedError(
                f"rollout {stored.run_id}, started by {stored.started_by}, is unfinished",
                hint=_CONTINUE_OR_UNDO,
            )

    def take_up(self, run_id: str, timeouts_from: Policy) -> None:
        """Mark the record as unfinished again. Of the stored policy, only timeouts are replaced."""
        stored = self._read_stored()
        if stored is None or stored.problem or stored.plan is None or stored.run_id != run_id:
            raise LockedError(
                f"the record of rollout {run_id} was changed or removed since it was read",
                hint="See its state: rollout status --run.",
            )
        self._last_wave = stored.last_wave
        policy = with_timeouts_of(stored.plan.policy, timeouts_from)
        changed_plan = None
        if policy != stored.plan.policy:
            changed_plan = replace(stored.plan, policy=policy)
        self._write_state(ended=False, plan=changed_plan)

    def store_health(self, wave: int, health: Health) -> None:
        """A process that continues after a crash needs this health.

        Failed writes are ignored. If the health is too large, only the wave's number is written.
        """
        self._last_wave = wave
        encoded = msgspec.json.encode(_StoredWave(health.workloads, health.ready_nodes, wave))
        if len(encoded) > _MOST_HEALTH:
            encoded = self._encode_wave_without_health()
        with suppress(ApiError):
            self._rewrite(lambda body: _put_wave(body, encoded))

    def _encode_wave_without_health(self) -> bytes:
        return msgspec.json.encode(_StoredWave(wave=self._last_wave))

    def end(self, *, complete: bool, stopped: bool = False) -> None:
        """Errors are only reported."""
        if self._deferred is not None:
            # No wave has begun: the stored record is another rollout's.
            return
        if not complete:
            self._mark_ended(stopped=stopped)
            return
        removal_error = self._remove()
        if removal_error is not None and self._mark_ended(stopped=stopped):
            outcome = "the record was not removed, but is marked as ended"
            self.notice(f"warning: {outcome}: {removal_error.message}")

    def _mark_ended(self, *, stopped: bool) -> bool:
        try:
            self._write_state(ended=True, stopped=stopped)
        except ApiNotFoundError:
            return False
        except ApiError as error:
            record = f"the record {self.document.origin} still shows an unfinished rollout"
            self.notice(f"warning: {record}: {error.message}")
            return False
        return True

    def _remove(self) -> ApiError | None:
        try:
            self.cluster.ask(lambda api: api.delete(self.document.path))
        except ApiNotFoundError:
            return None
        except ApiError as error:
            return error
        return None

    def _write_state(
        self, *, ended: bool, stopped: bool = False, plan: RolloutPlan | None = None
    ) -> None:
        def change(body: dict[str, Any]) -> None:
            annotations = dict(body["metadata"].get("annotations") or {})
            # An earlier process may have set it.
            annotations.pop(marks.ORIGIN, None)
            annotations[marks.ENDED] = "true" if ended else "false"
            annotations[marks.STOPPED] = "true" if stopped else "false"
            annotations.update(self._origin_mark)
            body["metadata"]["annotations"] = annotations
            if ended:
                _put_wave(body, self._encode_wave_without_health())
            if plan is not None:
                _replace_plan(body, plan)

        self._rewrite(change)

    def _rewrite(self, change: Callable[[dict[str, Any]], None]) -> None:
        """A replacement needs no right to patch."""

        def rewrite_once(api: ClusterApi) -> None:
            body = self.document.read(api).config_map
            if body is None:
                raise ApiNotFoundError(f"{self.document.origin} is gone")
            change(body)
            api.replace(self.document.path, body)

        self.cluster.ask(
            lambda api: compare_and_swap(lambda: rewrite_once(api), self.document.origin)
        )

    @property
    def _origin_mark(self) -> dict[str, str]:
        return {marks.ORIGIN: marks.OPERATE} if self.unattended else {}

    def _body(self, plan: RolloutPlan, holder: str) -> dict[str, Any]:
        annotations = {
            marks.RUN: plan.plan_id,
            marks.STARTED_BY: holder,
            marks.STARTED_AT: whole_second(self.cluster.clock.now()),
            **self._origin_mark,
        }
        metadata = {
            "name": marks.RECORD_NAME,
            "namespace": self.document.namespace,
            "annotations": annotations,
        }
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            **_plan_data(encode_plan(with_id(plan))),
        }


def _put_wave(body: dict[str, Any], encoded_wave: bytes) -> None:
    body["data"] = {**(body.get("data") or {}), HEALTH_KEY: encoded_wave.decode()}


def _replace_plan(body: dict[str, Any], plan: RolloutPlan) -> None:
    plan_data = _plan_data(encode_plan(with_id(plan)))
    for part in ("data", "binaryData"):
        content = dict(body.get(part) or {})
        # The new plan may be packed, and the old one not.
        content.pop(PLAN_KEY, None)
        content.pop(PACKED_PLAN_KEY, None)
        body[part] = {**content, **plan_data.get(part, {})}


def _plan_data(document: bytes) -> dict[str, dict[str, str]]:
    if len(document) <= _MOST_PLAIN:
        return {"data": {PLAN_KEY: document.decode()}}
    packed = gzip.compress(document, mtime=0)
    return {"binaryData": {PACKED_PLAN_KEY: base64.b64encode(packed).decode()}}
