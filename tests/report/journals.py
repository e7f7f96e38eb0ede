"""Journals for reports: of runs that never were, with the times that a test wants."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from rollout.model.cluster import ClusterIdentity
from rollout.model.gates import GatePolicy, WindowPolicy
from rollout.model.plan import (
    FORMAT_VERSION,
    Estimate,
    PlanSummary,
    RolloutPlan,
    TimeEstimate,
    Wave,
)
from rollout.model.policy import Policy, Selection
from rollout.planning.plan.document import encode_plan, policy_document
from rollout.report.lines import Record
from tests.report import builders

NIGHT = datetime(2026, 3, 4, 22, 0, tzinfo=UTC)
RUN = "0123456789abcdef"
# Seconds from a node's beginning to each phase, and to its end.
WAY = (
    (0, "pending"),
    (5, "cordoned"),
    (6, "draining"),
    (66, "drained"),
    (70, "rebooting"),
    (190, "booted"),
    *((220, "ready"), (225, "done")),
)
LENGTH = 225


def at(seconds: float) -> str:
    return (
        (NIGHT + timedelta(seconds=seconds))
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def record(kind: str, seconds: float, **fields: Any) -> Record:
    return {"type": kind, "at": at(seconds), **fields}


def policy(*windows: str) -> Policy:
    return Policy(gates=GatePolicy(windows=WindowPolicy(windows, wait=True)))


def begun(
    seconds: float = 0, command: str = "apply", *, rules: Policy | None = None, **fields: Any
) -> Record:
    who = {"by": "ann@laptop/12", "version": "1.2.3", "format_version": FORMAT_VERSION}
    cluster = {"uid": "uid", "server": "https://prod.example:6443", "version": "v1.36.0"}
    document = policy_document(rules or Policy())
    return record(
        "run",
        seconds,
        **{"run": RUN, "command": command, **who, "cluster": cluster, "policy": document, **fields},
    )


def plan(waves: Iterable[Iterable[str]], *, rules: Policy | None = None) -> RolloutPlan:
    waves_of = tuple(
        Wave(
            index,
            tuple(map(builders.planned, names)),
            "full wave",
            estimate=Estimate(300, 60, 180, 30, 30),
        )
        for index, names in enumerate(waves, start=1)
    )
    nodes = sum(len(wave.nodes) for wave in waves_of)
    return RolloutPlan(
        FORMAT_VERSION,
        RUN,
        "2026-03-04T21:59:00Z",
        ClusterIdentity("uid", "https://prod.example:6443", "v1.36.0"),
        Selection(),
        rules or Policy(),
        waves_of,
        excluded=(),
        blockers=(),
        warnings=(),
        summary=PlanSummary(nodes, len(waves_of), len(waves_of), 5 * nodes, 6 * nodes),
        estimate=TimeEstimate(300 * len(waves_of), assumed_reboot=180),
    )


def planned(whole: RolloutPlan, seconds: float = 1) -> Record:
    return record("plan", seconds, plan=json.loads(encode_plan(whole)))


def wave(index: int, of: int, names: Iterable[str], seconds: float) -> Record:
    fields = {
        "index": index,
        "waves": of,
        "nodes": list(names),
        "because": "full wave",
        "in_flight": None,
    }
    return record("wave_started", seconds, **fields)


def way(node: str, seconds: float, until: str = "done") -> Iterator[Record]:
    """Its phases from there on, up to this one."""
    for offset, phase in WAY:
        yield record("step", seconds + offset, node=node, phase=phase, detail="")
        if phase == until:
            return


def finished(node: str, seconds: float, outcome: str = "succeeded", **fields: Any) -> Record:
    good = outcome == "succeeded"
    usual = {
        "phase": "done" if good else "draining",
        "message": "" if good else "it went wrong",
        "hint": "",
    }
    version = "4081.2.1" if good else "3975.2.0"
    return record(
        "node_finished",
        seconds,
        **{
            "node": node,
            "outcome": outcome,
            **usual,
            "version": version,
            "left_cordoned": False,
            **fields,
        },
    )


def held(node: str, pod: str, since: float, seconds: float, **fields: Any) -> Record:
    usual = {
        "budget": "shop/ledger",
        "needs": 2,
        "has": 2,
        "owner": "StatefulSet/ledger",
        "message": "needs 2 has 2",
    }
    return record(
        "blocked",
        seconds,
        **{"node": node, "pod": pod, "since": at(since), "seconds_left": 540.0, **usual, **fields},
    )


def released(node: str, pod: str, since: float, seconds: float) -> Record:
    return record("released", seconds, node=node, pod=pod, budget="shop/ledger", since=at(since))


def ended(seconds: float, **fields: Any) -> Record:
    lists: dict[str, list[str]] = {
        name: [] for name in ("succeeded", "failed", "skipped", "not_started", "not_done")
    }
    figures = {"reasons": {}, "left_out": {}, "pods_to_move": 5, "evictions": 7}
    return record("summary", seconds, **{**lists, **figures, **fields})


@dataclass(frozen=True, slots=True)
class Night:
    """A run of waves, one after another, that all go well but for the failed; its journal in the
    order of its times.
    """

    waves: tuple[tuple[str, ...], ...] = (("worker-1", "worker-2"), ("worker-3",))
    failed: frozenset[str] = frozenset()
    rules: Policy | None = None

    def records(self) -> tuple[Record, ...]:
        first = (begun(rules=self.rules), planned(plan(self.waves, rules=self.rules)))
        rest = []
        seconds = 2.0
        for index, names in enumerate(self.waves, start=1):
            rest.append(wave(index, len(self.waves), names, seconds))
            for name in names:
                rest += list(way(name, seconds, "draining" if name in self.failed else "done"))
                rest.append(
                    finished(
                        name,
                        seconds + LENGTH,
                        "drain-failed" if name in self.failed else "succeeded",
                    )
                )
            seconds += LENGTH + 20
        return (*first, *sorted(rest, key=lambda entry: str(entry["at"])), ended(seconds))


@cache
def fleet(nodes: int, together: int) -> Night:
    names = tuple(
        f"ip-10-{place // 250}-{place % 250}-7.eu-central-1.compute.internal"
        for place in range(nodes)
    )
    return replace(
        Night(tuple(names[first : first + together] for first in range(0, nodes, together))),
        failed=frozenset(names[7::97]),
    )


def as_lines(records: Iterable[Record]) -> bytes:
    return b"".join(msgspec.json.encode(entry) + b"\n" for entry in records)
