"""What journals teach estimates: of this cluster, of successes, and not of what a run waited for on purpose."""

from typing import Any

import pytest

from rollout.planning.play.pace import Past
from rollout.report.experience import past_of

Record = dict[str, Any]


def at(seconds: int) -> str:
    return f"2026-03-01T{12 + seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.000Z"


def run(cluster: str = "here", gates: object = None) -> Record:
    who = {"format_version": "1.0", "run": "0123456789abcdef", "command": "apply", "by": "ann@laptop", "version": "1"}
    return {"type": "run", "at": at(0), **who, "cluster": {"uid": cluster}, "policy": {"gates": gates}}


def wave(index: int, seconds: int) -> Record:
    return {"type": "wave_started", "at": at(seconds), "index": index, "waves": 3, "nodes": []}


def step(node: str, phase: str, seconds: int) -> Record:
    return {"type": "step", "at": at(seconds), "node": node, "phase": phase}


def finished(node: str, outcome: str, seconds: int) -> Record:
    return {"type": "node_finished", "at": at(seconds), "node": node, "outcome": outcome, "phase": "done"}


STORY = [
    wave(1, 0),
    step("w-1", "draining", 1),
    step("w-2", "draining", 1),
    step("w-1", "drained", 11),
    step("w-2", "drained", 21),
    finished("w-1", "succeeded", 71),
    finished("w-2", "not-back", 90),
    wave(2, 95),
    step("w-3", "draining", 96),
    step("w-3", "drained", 100),
    finished("w-3", "succeeded", 200),
    {"type": "summary", "at": at(207)},
]


def test_what_succeeded_teaches_drains_and_reboots_and_every_wave_that_another_follows_its_settling() -> None:
    """Behind the last one nothing waits until all is well: what passes until the summary is no settling."""
    assert past_of([[run(), *STORY]], "here") == Past((10, 4), (60, 100), (5,))


@pytest.mark.parametrize("gates", [{"soak": "30m"}, {"windows": {"windows": ["sat 02:00 4h"]}}])
def test_what_a_run_waited_for_on_purpose_is_no_settling(gates: dict[str, object]) -> None:
    assert past_of([[run(gates=gates), *STORY]], "here") == Past((10, 4), (60, 100), ())


@pytest.mark.parametrize("name", ["reboot_delay", "wait_for_users"])
def test_what_an_empty_node_waited_for_on_purpose_is_no_reboot(name: str) -> None:
    delayed = {**run(), "policy": {"courtesy": {name: "5m"}}}
    story = [step("w-1", "draining", 1), step("w-1", "drained", 11), step("w-1", "rebooting", 50)]
    assert past_of([[delayed, *story, finished("w-1", "succeeded", 110)]], "here").reboots == (60,)
    assert past_of([[run(), *story, finished("w-1", "succeeded", 110)]], "here").reboots == (99,)


def test_an_interrupted_run_that_was_gone_on_with_counts_what_it_saw_whole() -> None:
    resumed = {**run(), "at": at(50)}
    story = [run(), step("w-1", "draining", 1), resumed, step("w-1", "drained", 60), finished("w-1", "succeeded", 70)]
    assert past_of([story], "here") == Past()


def released(node: str, seconds: int, since: int, budget: str = "shop/db") -> Record:
    return {"type": "released", "at": at(seconds), "node": node, "pod": "p", "budget": budget, "since": at(since)}


def emptying(node: str, seconds: int) -> Record:
    return {**step(node, "draining", seconds), "detail": "3 pods left, 1 terminating"}


WAITING = [
    emptying("w-1", 1),
    emptying("w-2", 1),
    released("w-1", 8, since=1),
    released("w-1", 15, since=1),
    step("w-1", "drained", 18),
    finished("w-1", "succeeded", 60),
    released("w-2", 24, since=1),
    step("w-2", "drained", 28),
    finished("w-2", "succeeded", 90),
    step("w-3", "drained", 95),
]


def test_pods_that_waited_for_a_budget_teach_its_turns_and_the_rest_of_the_drain_how_they_end() -> None:
    past = past_of([[run(), *WAITING]], "here")
    assert (past.drains, past.endings, past.turns) == ((17, 27), (3, 4), (7, 7, 9))


def test_permits_that_come_back_together_are_one_turn_and_a_webhooks_delay_is_none() -> None:
    together = [emptying("w-1", 1), released("w-1", 8, since=1), released("w-1", 8, since=1)]
    by_others = released("w-1", 20, since=1, budget="")
    ended = [step("w-1", "drained", 22), finished("w-1", "succeeded", 60)]
    assert past_of([[run(), *together, by_others, *ended]], "here").turns == (7,)


def test_what_pods_of_each_owner_took_to_end_is_known_by_owner() -> None:
    first = {**step("w-1", "drained", 11), "endings": {"StatefulSet/shop/db": 90.5, "ReplicaSet/shop/web": 2}}
    second = {**step("w-2", "drained", 12), "endings": {"StatefulSet/shop/db": 80}}
    garbled = {**step("w-3", "drained", 13), "endings": "quick"}
    story = [run(), first, second, garbled]
    expected = {"StatefulSet/shop/db": (90.5, 80, 70), "ReplicaSet/shop/web": (2,)}
    again = [run(), {**step("w-1", "drained", 11), "endings": {"StatefulSet/shop/db": 70}}]
    assert past_of([story, again, [run("there"), first]], "here").owners == expected


def test_what_spans_a_step_of_the_clock_teaches_nothing() -> None:
    """Set on by an hour, or a machine that slept, in one node's turn; set back by an hour in the next; a late wave."""
    on, back = 3600, -3600
    story = [
        wave(1, 0),
        *(step("w-1", "draining", 1), step("w-1", "drained", 11)),
        {**finished("w-1", "succeeded", 71 + on), "seconds": 71.0},
        wave(2, 80 + on),
        *(step("w-2", "draining", 81 + on), step("w-2", "drained", 91 + on)),
        {**finished("w-2", "succeeded", 171 + on + back), "seconds": 91.0},
        wave(3, 180 + on),
        *(step("w-3", "draining", 181 + on), step("w-3", "drained", 185 + on)),
        {**finished("w-3", "succeeded", 200 + on), "seconds": 19.5},
    ]
    begun = {**run(), "policy": {"settle_timeout": "5m"}}
    assert past_of([[begun, *story]], "here") == Past((4,), (15,), (9,))
