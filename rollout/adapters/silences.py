"""Silences nodes' alerts in Alertmanager (API v2).

A silence is renewed every few minutes, so none stays after a crash.
"""

import re
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Self

import msgspec

from rollout.adapters.foreign_http import Bounds, ExchangeError, exchange
from rollout.adapters.prometheus import ALERTMANAGER, check_url
from rollout.model.json_text import DECODE_ERRORS, json_line
from rollout.model.progress import NodeFinished, NodeStep, Phase, StepEvent
from rollout.model.timestamps import timestamp
from rollout.ports import Clock

_SILENCE_LENGTH = timedelta(minutes=5)
_RENEWAL_SECONDS = 120.0
# A cordon waits for it.
_BOUNDS = Bounds(seconds=5.0, largest=100_000)
_NOT_FOUND = 404


class _PostedSilence(msgspec.Struct, frozen=True):
    silence_id: str = msgspec.field(name="silenceID")


class NodeSilences:
    """Silences the nodes of a run by its events; warns once."""

    def __init__(
        self,
        url: str,
        label: str,
        addresses: Mapping[str, str],
        clock: Clock,
        warn: Callable[[str], None],
    ) -> None:
        """`label` has the name or address, maybe with a port; `addresses` are by node."""
        self._api = f"{check_url(url, ALERTMANAGER).rstrip('/')}/api/v2"
        self._label = label
        self._addresses = addresses
        self._clock = clock
        self._warn = warn
        self._id_by_node: dict[str, str] = {}
        self._in_flight: set[str] = set()
        self._is_failing = False
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._renew_until_over, name="silences", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._is_over.set()
        for node in list(self._id_by_node):
            self._delete(node)

    def notify(self, event: StepEvent) -> None:
        """Silence a node from its start to its end."""
        if isinstance(event, NodeFinished):
            self._delete(event.node)
        elif isinstance(event, NodeStep) and event.node not in self._in_flight:
            # While it waits, only its steps renew the silence.
            if event.phase is not Phase.PENDING:
                self._in_flight.add(event.node)
            self._create_or_renew(event.node)

    def _renew_until_over(self) -> None:
        while not self._clock.wait(self._is_over, _RENEWAL_SECONDS):
            for node in list(self._in_flight):
                self._create_or_renew(node, is_renewal=True)

    def _create_or_renew(self, node: str, *, is_renewal: bool = False) -> None:
        with self._lock:
            has_finished = is_renewal and node not in self._in_flight
            # No node waits for a failing Alertmanager.
            is_left_to_renewals = self._is_failing and not is_renewal
            if self._is_over.is_set() or has_finished or is_left_to_renewals:
                return
            try:
                self._id_by_node[node] = self._post_silence(node, self._id_by_node.get(node, ""))
                self._is_failing = False
            except ExchangeError as error:
                self._note_failure(node, error)

    def _note_failure(self, node: str, error: ExchangeError) -> None:
        if error.status == _NOT_FOUND:
            self._id_by_node.pop(node, None)
        if not self._is_failing:
            effect = "alerts of nodes that reboot are not silenced"
            self._warn(f"warning: {effect}: Alertmanager {error}")
        self._is_failing = True

    def _post_silence(self, node: str, silence_id: str) -> str:
        now = self._clock.now()
        silence = {
            "matchers": [self._matcher(node)],
            "startsAt": timestamp(now),
            "endsAt": timestamp(now + _SILENCE_LENGTH),
            "createdBy": "rollout",
            "comment": f"{node} is rebooted for an update",
        }
        if silence_id:
            silence["id"] = silence_id
        body = self._send("POST", "/silences", json_line(silence))
        try:
            return msgspec.json.decode(body, type=_PostedSilence).silence_id
        except DECODE_ERRORS as error:
            raise ExchangeError("does not respond like Alertmanager") from error

    def _matcher(self, node: str) -> dict[str, object]:
        address = self._addresses.get(node, "")
        # As Prometheus brackets IPv6.
        instance = f"[{address}]" if ":" in address else address
        names = "|".join(
            re.escape(name) for name in dict.fromkeys((node, address, instance)) if name
        )
        return {
            "name": self._label,
            "value": f"({names})(:[0-9]+)?",
            "isRegex": True,
            "isEqual": True,
        }

    def _delete(self, node: str) -> None:
        with self._lock:
            self._in_flight.discard(node)
            silence_id = self._id_by_node.pop(node, "")
            if not silence_id:
                return
            try:
                self._send("DELETE", f"/silence/{silence_id}")
            except ExchangeError as error:
                if error.status == _NOT_FOUND:
                    return
                effect = f"the silence of {node} will expire in {_SILENCE_LENGTH}"
                self._warn(f"warning: {effect}: Alertmanager {error}")

    def _send(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": "application/json"}
        return exchange(f"{self._api}{path}", _BOUNDS, headers, body=body, method=method)
