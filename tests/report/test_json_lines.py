import io
import json
import threading

from msgspec.structs import replace

from rollout.model.progress import (
    Findings,
    NodeCondition,
    NodeFinished,
    NodeResult,
    NodeStep,
    Notice,
    NotStarted,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    RunFinished,
    RunResult,
    StepEvent,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.report.lines import JsonLines
from tests.report.builders import AT, plan

SEEN = Findings(
    "the connection was refused",
    (NodeCondition("Ready", "Unknown", "NodeStatusUnknown", "silent"),),
    "the console of lab://2",
)
FAILED = NodeResult(
    "node-2", Outcome.ROLLED_BACK, Phase.READY, 31.25, "it runs the old version", "look", "3975.2.0", findings=SEEN
)
DONE = NodeResult("node-1", Outcome.SUCCEEDED, Phase.DONE, 30.0, version="4081.2.1")

EVENTS: tuple[StepEvent, ...] = (
    PlanReady(AT, plan()),
    WaveStarted(AT, 1, 2, ("node-1",), "the canary goes alone"),
    NodeStep(AT, "node-1", Phase.DRAINING, "3 pods left"),
    PodBlocked(AT, "node-1", "shop/cart-1", "shop/cart", AT, "needs 2 healthy pods", 540.04),
    NodeFinished.of(AT, DONE),
    WaveSettling(AT, 1, "deployment shop/cart"),
    VersionHeld(AT, "4081.2.1", ("node-2",), "version 4081.2.1 is held"),
    Notice(AT, "waiting for the API server"),
    RunFinished(
        AT,
        RunResult((DONE, FAILED), (NotStarted("node-3", "cordoned since"),), (NotStarted("node-4", "a failure"),)),
    ),
)


def written(*events: StepEvent) -> list[dict[str, object]]:
    stream = io.StringIO()
    lines = JsonLines(stream)
    lines.begin(AT)
    for event in events:
        lines.notify(event)
    return [json.loads(text) for text in stream.getvalue().splitlines()]


def test_summary_has_every_node_once() -> None:
    summary = written(EVENTS[-1])[-1]
    assert summary["succeeded"] == ["node-1"]
    assert summary["failed"] == [
        {
            "node": "node-2",
            "phase": "ready",
            "message": "it runs the old version",
            "outcome": "rolled-back",
            "hint": "look",
            "left_cordoned": False,
            "ssh_error": "the connection was refused",
            "conditions": [
                {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "silent", "since": ""}
            ],
            "console": "the console of lab://2",
        }
    ]
    assert summary["skipped"] == ["node-3"]
    assert summary["not_started"] == ["node-4"]
    assert summary["reasons"] == {"node-3": "cordoned since", "node-4": "a failure"}


def test_many_threads_never_mix_lines() -> None:
    stream = io.StringIO()
    lines = JsonLines(stream)
    step = NodeStep(AT, "node", Phase.DRAINING, "x" * 500)

    def many(number: int) -> None:
        for _ in range(100):
            lines.notify(replace(step, node=f"node-{number}"))

    threads = [threading.Thread(target=many, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(text) for text in stream.getvalue().splitlines()]) == 800
