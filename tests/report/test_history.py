"""Journals as people read them."""

import json
import re
from collections.abc import Callable, Sequence

import msgspec
import pytest

from rollout.model.policy import Policy
from rollout.model.progress import (
    EvictedPod,
    NodeFinished,
    NodeStep,
    Phase,
    PodBlocked,
    PodReleased,
    PodsEvicted,
    WaveStarted,
)
from rollout.model.quantity import Count, Duration
from rollout.report.history import history_text, timeline_text
from rollout.report.lines import Record, event_line, journal_record
from rollout.report.markdown import run_markdown
from rollout.report.run_view import RunView
from rollout.report.runs.model import RunReport
from rollout.report.runs.pages import run_page
from rollout.report.runs.report import report_of
from rollout.report.sentences import sentence
from tests.report.builders import AT, EVENTS, FAILED
from tests.report.journals import begun

RULES = Policy(max_unavailable=Count(3), reboot_timeout=Duration(60), prefer_no_schedule_taint=True)
BEGUN = begun(
    rules=RULES, at="2026-03-04T05:06:07.089Z", cluster={"server": "https://127.0.0.1:6443"}
)
HELD = PodBlocked(AT, "node-1", "shop/cart-1", "shop/cart", AT, "needs 2 healthy pods", 540.04)
STEPS = (
    NodeStep(AT, "node-1", Phase.PENDING),
    NodeStep(AT, "node-1", Phase.DRAINING),
    NodeStep(AT, "node-1", Phase.DRAINING, "7 pods left"),
    HELD,
    HELD,
    PodReleased(AT, "node-1", "shop/cart-1", "shop/cart", AT),
)
RUN: tuple[Record, ...] = (
    BEGUN,
    *(
        json.loads(msgspec.json.encode(journal_record(event_line(event))))
        for event in (*EVENTS[:2], *STEPS, NodeFinished.of(AT, FAILED), *EVENTS[2:])
    ),
)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


def report(*records: Record, is_being_written: bool | None = None) -> RunReport:
    return report_of(records, origin="run.jsonl", is_being_written=is_being_written)


def rows(records: Sequence[Record], *, details: bool = False) -> list[str]:
    return timeline_text(report(*records), records, details=details).splitlines()


EVICTED = PodsEvicted(
    AT,
    "node-1",
    (
        EvictedPod("shop/cart-1", "ReplicaSet/cart", AT, 3.0),
        EvictedPod("shop/db-0", "StatefulSet/db", AT, None),
        EvictedPod("shop/naked", "", AT, 0.5),
    ),
)
MOVED: tuple[Record, ...] = (
    *RUN[:-1],
    json.loads(msgspec.json.encode(journal_record(event_line(EVICTED)))),
    RUN[-1],
)


def test_nested_times_have_milliseconds_too() -> None:
    at = "2026-03-04T05:06:07.089Z"
    summary = RUN[-1]
    assert summary["at"] == at
    assert [node["at"] for node in summary["failed"]] == [at]
    assert {pod["evicted_at"] for pod in MOVED[-2]["pods"]} == {at}


def test_the_timeline_names_evicted_pods_only_with_details() -> None:
    shown = rows(MOVED, details=True)
    at = next(number for number, row in enumerate(shown) if row.endswith("node-1: 3 pods evicted"))
    assert [row.strip() for row in shown[at + 1 : at + 4]] == [
        "shop/cart-1 (ReplicaSet/cart), gone after 3s",
        "shop/db-0 (StatefulSet/db), not gone yet",
        "shop/naked, gone after 0s",
    ]
    assert not any(row.endswith("evicted") for row in rows(MOVED))


def test_the_report_has_every_evicted_pod() -> None:
    found = report(*MOVED).evicted
    assert [(pod.node, pod.pod, pod.owner, pod.evicted_at, pod.seconds) for pod in found] == [
        ("node-1", "shop/cart-1", "ReplicaSet/cart", AT, 3.0),
        ("node-1", "shop/db-0", "StatefulSet/db", AT, None),
        ("node-1", "shop/naked", "", AT, 0.5),
    ]


@pytest.mark.parametrize("shown", [run_page, run_markdown])
def test_page_and_markdown_name_the_evicted_pods(shown: Callable[[RunReport], str]) -> None:
    text = shown(report(*MOVED))
    assert "Evicted pods" in text
    assert all(word in text for word in ("shop/cart-1", "ReplicaSet/cart", "05:06:07"))
    assert "Evicted pods" not in shown(report(*RUN))


def test_a_denied_eviction_is_told_with_the_policy_and_its_message() -> None:
    denied = PodBlocked(
        AT, "node-1", "shop/cart-1", "", AT, "no evictions", 540.0, admission_policy="freeze"
    )
    assert sentence(denied).endswith(
        "shop/cart-1: eviction blocked by ValidatingAdmissionPolicy freeze (no evictions)"
        " · drain times out in 9m00s"
    )


def test_a_row_says_how_far_it_came() -> None:
    header, row = history_text([report(*RUN)]).splitlines()
    assert " ".join(header.split()) == "RUN STARTED TOOK COMMANDS NODES CLUSTER END"
    assert row.split(maxsplit=7) == [
        *("0123456789abcdef", "2026-03-04", "05:06", "0s", "apply", "3", "127.0.0.1:6443"),
        "incomplete, 1 failed, 2 nodes left",
    ]
    for is_being_written, word in (
        (None, "running or interrupted"),
        (True, "running"),
        (False, "interrupted"),
    ):
        assert history_text([report(*RUN[:-1], is_being_written=is_being_written)]).endswith(
            f"  {word}, 1 failed"
        )
    assert history_text([]) == "No run is recorded here."


def test_on_a_terminal_only_what_tells_runs_apart_has_a_column() -> None:
    resumed = {**BEGUN, "command": "resume", "by": "bob@desk/7"}
    told = history_text([report(*RUN), report(*RUN, resumed, RUN[-1])], width=100)
    assert told.splitlines()[0].split() == ["RUN", "STARTED", "TOOK", "COMMANDS", "NODES", "END"]


def test_at_80_columns_a_run_has_its_command_and_its_end_on_its_own_line() -> None:
    _, row, *further = history_text([report(*RUN)], width=80).splitlines()
    assert row.split()[4:6] == ["apply", "3"]
    assert row.split()[6] == "incomplete,"
    assert all(line.startswith(" " * 40) for line in further)


def waves_of(*started: tuple[int, int, str]) -> list[tuple[int, int]]:
    view = RunView()
    for index, waves, nodes in started:
        view.apply(WaveStarted(AT, index, waves, tuple(nodes.split())))
    return [(wave.index, wave.of) for wave in view.waves]


def test_waves_keep_their_numbers_over_resumes() -> None:
    assert waves_of((1, 8, "a b"), (1, 7, "c"), (1, 6, "d"), (2, 6, "e")) == [
        (1, 8),
        (2, 8),
        (3, 8),
        (4, 8),
    ]


def test_a_wave_that_is_resumed_keeps_its_number() -> None:
    assert waves_of((1, 3, "a"), (2, 3, "b c"), (1, 2, "c"), (2, 2, "d")) == [
        (1, 3),
        (2, 3),
        (2, 3),
        (3, 3),
    ]


def test_numbers_in_markdown_are_no_code() -> None:
    text = run_markdown(report(*RUN))
    assert not re.search(r"`[\d:hms %]+`", text)
    assert "`node-1`" in text


def test_a_timeline_begins_with_who_did_what_by_which_rules() -> None:
    assert rows(RUN)[:7] == [
        (
            "Run 0123456789abcdef, incomplete: of 3 planned nodes, 1 succeeded, 1 failed, 1 was not"
            " started; 1 other node could not be rebooted"
        ),
        "cluster   127.0.0.1:6443",
        "started   Wed 2026-03-04 05:06:07 UTC",
        "ended     Wed 2026-03-04 05:06:07 UTC, after 0s",
        "apply     by ann@laptop/12 at 05:06:07, rollout 1.2.3",
        "versions  3975.2.0 → 4081.2.1 (1 node), 3975.2.0 unchanged (2 nodes)",
        "rules     --max-unavailable 3, --reboot-timeout 1m",
    ]


def test_what_was_seen_of_a_failed_node_stands_below_its_end() -> None:
    told = rows(RUN)
    at = next(number for number, row in enumerate(told) if "✘" in row)
    assert (
        told[at]
        == "05:06:07  ✘ node-2  rolled back to 3975.2.0 from 4081.2.1: the update did not take effect"
    )
    assert [row.strip() for row in told[at + 1 : at + 5]] == [
        "last SSH error: the connection was refused",
        "Node condition Ready is Unknown: NodeStatusUnknown: silent",
        "console: the console of lab://2",
        "hint: look",
    ]
    assert any(row.endswith("✔ node-1  on 4081.2.1  30s") for row in told)
    assert any(
        row.endswith(
            "ended: 1 succeeded, 1 failed, 1 was not started; 1 other node could not be rebooted"
        )
        for row in told
    )


ABORTED = {
    "type": "aborted",
    "at": "2026-03-04T05:09:00Z",
    "by": "bob@ops/7",
    "run": "0123456789abcdef",
    "reverted": ["node-1"],
    "left": ["node-2"],
}


def test_a_run_that_was_undone_says_so() -> None:
    history = report(*RUN[:-1], ABORTED)
    row = history_text([history]).splitlines()[-1]
    assert row.endswith("aborted, 1 failed")
    assert "apply, abort" in row
    assert (
        rows((*RUN[:-1], ABORTED))[-1].split(maxsplit=1)[1].strip()
        == "aborted by bob@ops/7: returned to service: node-1; left unchanged: node-2"
    )
    resumed = report(*RUN[:-1], ABORTED, BEGUN)
    assert history_text([resumed]).endswith("running or interrupted, 1 failed")
