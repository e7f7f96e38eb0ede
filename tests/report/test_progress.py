import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyte
import pytest
from msgspec import UNSET, structs
from msgspec.structs import replace
from rich.console import Console

from rollout.adapters.clock import SystemClock
from rollout.execution.base.deadline import GracefulStop
from rollout.execution.base.reporting import Reporter
from rollout.model.completion import AwaitedPod
from rollout.model.plan import Estimate, TimeEstimate
from rollout.model.progress import (
    Activity,
    EvictedPod,
    NodeFinished,
    NodeResult,
    NodeStep,
    Notice,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodsEvicted,
    StepEvent,
)
from rollout.model.timestamps import elapsed
from rollout.report import live
from rollout.report.lines import JsonLines
from rollout.report.live import LiveProgress
from rollout.report.plain import PlainLines
from rollout.report.sentences import blocked_lines, sentence
from rollout.wording.drain import awaited_text
from tests.execution.conftest import Recorder
from tests.report.builders import AT, EVENTS, FAILED


def terminal(stream: io.StringIO, width: int = 120, height: int | None = None) -> Console:
    """Without colours."""
    return Console(
        file=stream,
        force_terminal=True,
        width=width,
        height=height,
        color_system=None,
        highlight=False,
    )


def screen(*events: StepEvent) -> str:
    """What a terminal has been sent while all these happened."""
    stream = io.StringIO()
    with LiveProgress(terminal(stream)) as live:
        for event in events:
            live.notify(event)
        live._live.refresh()
    return stream.getvalue()


EVICTED = PodsEvicted(AT, "node-1", (EvictedPod("shop/cart-1", "ReplicaSet/cart", AT, 3.0),))


@pytest.mark.parametrize("names_pods", [True, False])
def test_evicted_pods_are_told_on_request(*, names_pods: bool) -> None:
    plain = io.StringIO()
    board = io.StringIO()
    PlainLines(plain, names_pods=names_pods).notify(EVICTED)
    with LiveProgress(terminal(board), names_pods=names_pods) as live:
        live.notify(EVICTED)
    said = "node-1: evicted shop/cart-1 (ReplicaSet/cart), gone after 3s"
    assert (said in plain.getvalue()) is names_pods
    assert (said in board.getvalue()) is names_pods


def test_plain_lines_in_a_log_have_date_and_zone_and_one_line_an_event() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for event in EVENTS:
        lines.notify(event)
    told = stream.getvalue().splitlines()
    assert len(told) == len(EVENTS)
    assert told[5].endswith("wave 1 is settling: ReplicaSet shop/cart has 1 of 2 pods ready")
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in told)
    assert told[2].endswith("node-1: draining, 3 pods left")
    assert told[4].endswith("✔ node-1  on 4081.2.1  30s")


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def plain(events: Iterable[tuple[float, StepEvent]]) -> list[str]:
    """The lines, without their time of day, of events heard at these moments."""
    stream = io.StringIO()
    hands = Hands()
    lines = PlainLines(stream, hands)
    for at, event in events:
        hands.at = at
        lines.notify(event)
    return [line.partition(" ")[2] for line in stream.getvalue().splitlines()]


def test_plain_lines_tell_at_once_what_a_node_waits_for_before_its_reboot() -> None:
    def step(phase: Phase, detail: str = "") -> NodeStep:
        activity = Activity.WAITING if detail else UNSET
        return NodeStep(AT, "node-1", phase, detail, activity=activity)

    waiting = "waiting for core (pts/0) to log out, 1h at most"
    told = plain(
        [
            (0, step(Phase.CORDONED)),
            (0, step(Phase.CORDONED, "waiting 1m before its drain (drain.delay)")),
            (60, step(Phase.DRAINED)),
            *((61 + number, step(Phase.DRAINED, waiting)) for number in range(20)),
            (81, step(Phase.DRAINED, "waiting for ada (tty1) to log out, 1h at most")),
        ]
    )
    assert [line.partition("node-1: ")[2] for line in told] == [
        "cordoned",
        "cordoned, waiting 1m before its drain (drain.delay)",
        "drained",
        f"drained, {waiting}",
        "drained, waiting for ada (tty1) to log out, 1h at most",
    ]


def test_the_board_shows_who_is_in_flight_and_what_it_waits_for() -> None:
    shown = screen(*EVENTS[:4])
    assert "eviction blocked by PDB shop/cart (needs 2 healthy pods) · 9m00s left" in shown
    assert "draining" in shown
    assert re.search(r"Wave 1 of 2 +0 of 3 done, ", shown)


def test_the_board_shows_which_jobs_a_drain_waits_for() -> None:
    awaited = (
        AwaitedPod("ml/train-7-x8z2k", "ml/train-7", "2026-03-04T04:32:07Z"),
        AwaitedPod("ml/train-8-abcde", "ml/train-8", "2026-03-04T05:00:07Z"),
    )
    detail = awaited_text(awaited, AT)
    step = NodeStep(
        AT, "node-1", Phase.DRAINING, detail, activity=Activity.COMPLETION, awaited=awaited
    )
    shown = " ".join(screen(EVENTS[0], step).split())
    assert "draining 0s waits for 2 jobs to finish (ml/train-7, 34m so far)" in shown


def test_a_board_fits_the_terminal_and_leaves_the_whole_in_sight() -> None:
    """Thirty nodes in twelve lines: the held back one, those longest in their phase, and figures of
    the others.
    """
    stream = io.StringIO()
    hands = Hands()
    console = terminal(stream, 100, 12)
    live = LiveProgress(console, hands)
    live.notify(EVENTS[0])
    for number in range(30):
        hands.at = float(number)
        live.notify(
            NodeStep(
                AT, f"node-{number}", Phase.DRAINING if number > 10 else Phase.REBOOTING, "a " * 90
            )
        )
    live.notify(
        PodBlocked(AT, "node-29", "shop/cart-1", "shop/cart", AT, "needs 2 healthy pods", 540.04)
    )
    console.print(live._render())
    shown = stream.getvalue().splitlines()
    assert len(shown) <= 12
    assert "0 of 3 done" in shown[0]
    assert "and 23 more" in shown[-1]
    assert "18 draining, 5 rebooting" in shown[-1]
    assert any("node-29" in line and "draining" in line for line in shown)
    assert any(
        "blocked by PDB shop/cart (needs 2 healthy pods) · 9m00s left" in line for line in shown
    )
    assert any("node-0" in line and "rebooting" in line for line in shown)


def test_no_escape_of_a_host_reaches_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    shown = screen(NodeStep(AT, "node-1", Phase.DRAINING, evil), Notice(AT, evil))
    assert "owned" in shown
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown


def together(act: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Do it with each in a thread of its own."""
    threads = [threading.Thread(target=act, args=(item,)) for item in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Slow(io.StringIO):
    """A terminal that takes its time, so that several threads have something to write."""

    def write(self, text: str) -> int:
        time.sleep(0.002)
        return super().write(text)


def test_lines_of_many_threads_leave_nothing_of_the_board_standing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where forty nodes of a wave are back at once: parts of boards stood between their lines."""
    stream = Slow()
    nodes = [f"node-{number}" for number in range(160)]
    console = Console(
        file=stream, force_terminal=True, width=80, height=24, legacy_windows=False, _environ={}
    )

    def take(some: Sequence[str]) -> None:
        for pair in zip(some[::2], some[1::2], strict=True):
            for node in pair:
                shown.notify(NodeStep(AT, node, Phase.REBOOTING, "on its way"))
            for node in pair:
                shown.notify(NodeFinished.of(AT, replace(FAILED, node=node)))

    monkeypatch.setattr(live, "_REFRESHES_PER_SECOND", 500)
    with LiveProgress(console) as shown:
        together(take, [nodes[first::8] for first in range(8)])
    shown_there = pyte.HistoryScreen(80, 24, history=5000)
    pyte.Stream(shown_there).feed(stream.getvalue().replace("\n", "\r\n"))
    lines = [
        "".join(row[column].data for column in range(80)) for row in shown_there.history.top
    ] + shown_there.display
    assert sum("✘ node-" in line for line in lines) == len(nodes)
    assert [line for line in lines if "on its way" in line] == []


class _Broken:
    def __init__(self) -> None:
        self.calls = 0

    def notify(self, event: StepEvent) -> None:
        self.calls += 1
        raise BrokenPipeError


def test_a_broken_observer_stops_nothing_and_is_left_alone() -> None:
    broken = _Broken()
    other = Recorder()
    report = Reporter((broken, other), SystemClock())
    report.tell(EVENTS[0])
    report.tell(EVENTS[1])
    assert broken.calls == 1
    assert other.events == [EVENTS[0], EVENTS[1]]


def board(live: LiveProgress, width: int = 80) -> str:
    stream = io.StringIO()
    live._console = terminal(stream, width)
    live._console.print(live._render())
    return stream.getvalue()


def test_the_estimate_is_corrected_by_the_pace_of_the_nodes_that_have_ended() -> None:
    hands = Hands()
    live = LiveProgress(terminal(io.StringIO()), hands)
    ready = EVENTS[0]
    assert isinstance(ready, PlanReady)
    waves = tuple(replace(wave, estimate=Estimate(30)) for wave in ready.plan.waves)
    names = [node.name for wave in waves for node in wave.nodes]
    live.notify(replace(ready, plan=replace(ready.plan, waves=waves, estimate=TimeEstimate(60))))
    hands.at = 50.0
    assert "50s of about 1m00s" in board(live, 120)
    first = next(node.name for node in waves[0].nodes)
    live.notify(NodeFinished.of(AT, NodeResult(first, Outcome.SUCCEEDED, Phase.DONE, 50.0)))
    share = 30 / len(waves[0].nodes)
    assert f"50s of about {elapsed(50 * 60 / share)}" in board(live, 120)
    hands.at = 50 * 60 / share + 1
    assert "longer than estimated" in board(live, 120)
    for name in names[1:]:
        live.notify(NodeFinished.of(AT, NodeResult(name, Outcome.SUCCEEDED, Phase.DONE, 50.0)))
    ended = board(live, 120)
    assert "3 of 3 done" in ended
    assert "estimated" not in ended
    assert "about" not in ended


class TerminalStream(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_on_a_terminal_have_the_time_of_day() -> None:
    stream = TerminalStream()
    PlainLines(stream).notify(EVENTS[1])
    assert re.match(r"\d\d:\d\d:\d\d ", stream.getvalue())


LEDGER = PodBlocked(
    AT,
    "worker-3",
    "shop/ledger-c07ba4bc-mjbwp",
    "shop/ledger",
    AT,
    "needs 2",
    29.0,
    owner="ReplicaSet/ledger-c07ba4bc",
    needs=2,
    has=2,
)


@pytest.mark.parametrize("width", [46, 60, 76, 80, 96, 100, 120, 200])
def test_what_holds_a_pod_is_never_cut_where_it_matters(width: int) -> None:
    told = " ".join(blocked_lines(LEDGER, width))
    assert "blocked by PDB shop/ledger (" in told
    assert "ledger-c07ba4bc-mjbwp" in told
    assert "needs 2" in told
    assert "…" not in told


def test_what_holds_a_pod_fits_the_board() -> None:
    for width in range(46, 160):
        assert all(len(line) <= width for line in blocked_lines(LEDGER, width))


def test_the_owner_of_a_pod_goes_first() -> None:
    assert "ReplicaSet" in blocked_lines(LEDGER, 160)[0]
    assert "ReplicaSet" not in " ".join(blocked_lines(LEDGER, 100))


PRIMARY = structs.replace(LEDGER, controller="Cluster shop/ledger")


@pytest.mark.parametrize("width", [46, 76, 80, 100, 160])
def test_who_has_to_open_a_budget_is_never_cut(width: int) -> None:
    assert "waits for Cluster shop/ledger" in " ".join(blocked_lines(PRIMARY, width))


def test_a_budget_that_another_controller_opens_shows_its_figures_if_there_is_room() -> None:
    assert blocked_lines(PRIMARY, 160)[0].endswith(
        "(needs 2 healthy, has 2; waits for Cluster shop/ledger) · 29s left"
    )


def test_a_long_refusal_has_two_lines() -> None:
    refused = structs.replace(LEDGER, needs=None, has=None, message="the webhook says no " * 20)
    lines = blocked_lines(refused, 80)
    assert len(lines) == 2
    assert lines[0].startswith("ledger-c07ba4bc-mjbwp: blocked by PDB shop/ledger (the webhook")


@pytest.mark.parametrize("revert", [False, True])
def test_the_stopping_line_is_whole_at_80_columns(*, revert: bool) -> None:
    stop = GracefulStop(revert=revert)
    live = LiveProgress(terminal(io.StringIO()), Hands(), stop)
    live.notify(EVENTS[0])
    stop.request()
    last = board(live).splitlines()[-1].rstrip()
    assert last.startswith("Stopping: ")
    assert last.endswith("Press Ctrl-C again to quit.")


def reflowed(before: pyte.Screen, width: int) -> pyte.Screen:
    """The same on a terminal that has become narrower, and has broken its lines as most do."""
    lines = [line.rstrip() for line in before.display[: before.cursor.y + 1]]
    after = pyte.Screen(width, 40)
    pyte.Stream(after).feed("\r\n".join(lines))
    return after


@pytest.mark.parametrize("width", [99, 70, 41])
def test_a_board_leaves_no_frame_when_its_terminal_becomes_narrower(width: int) -> None:
    sent = io.StringIO()
    console = terminal(sent, 100, 40)
    before = pyte.Screen(100, 40)
    with LiveProgress(console) as live:
        for event in EVENTS[:4]:
            live.notify(event)
        live._live.refresh()
        pyte.Stream(before).feed(sent.getvalue().replace("\n", "\r\n"))
        after = reflowed(before, width)
        console.width = width
        sent.truncate(0)
        live._live.refresh()
        pyte.Stream(after).feed(sent.getvalue().replace("\n", "\r\n"))
        text = "\n".join(after.display)
    assert text.count("0 of 3 done") == 1
    assert text.count("draining") == 1


def test_what_a_node_waits_for_is_not_cut_off_at_80_columns() -> None:
    live = LiveProgress(terminal(io.StringIO()), Hands())
    live.notify(EVENTS[0])
    live.notify(
        NodeStep(
            AT,
            "worker-1",
            Phase.DRAINING,
            "3 pods left, waiting for shop/cart-1 to end, its grace is 10m",
        )
    )
    shown = " ".join(board(live).split())
    assert "…" not in shown
    assert "waiting for shop/cart-1 to end, its grace is 10m" in shown
    live.notify(NodeStep(AT, "worker-1", Phase.DRAINING, "a long tale " * 20))
    assert [line.rstrip()[-1] for line in board(live).splitlines() if "a long tale" in line][
        1:
    ] == ["…"]


def test_a_host_that_is_silent_while_it_reboots_looks_normal_and_any_other_trouble_does_not() -> (
    None
):
    hands = Hands()
    live = LiveProgress(terminal(io.StringIO()), hands)
    down = NodeStep(
        AT, "worker-1", Phase.REBOOTING, "waiting for the host", activity=Activity.HOST_DOWN
    )
    live.notify(down)
    hands.at = 12.0
    assert board(live, 120).rstrip().endswith("down for 12s")
    ready = EVENTS[0]
    assert isinstance(ready, PlanReady)
    known = TimeEstimate(60, usual_reboot=27)
    live.notify(replace(ready, plan=replace(ready.plan, estimate=known)))
    assert board(live, 120).rstrip().endswith("down for 12s, usually 27s")
    refused = NodeStep(AT, "worker-1", Phase.REBOOTING, "no SSH key is accepted")
    assert sentence(down) == "worker-1: rebooting, still down"
    assert sentence(refused) == "worker-1: rebooting, no SSH key is accepted"
    live.notify(refused)
    assert "no SSH key is accepted" in " ".join(board(live, 120).split())


def test_many_threads_never_mix_lines() -> None:
    stream = io.StringIO()
    lines = JsonLines(stream, AT)
    step = NodeStep(AT, "node", Phase.DRAINING, "x" * 500)

    def many(number: int) -> None:
        for _ in range(100):
            lines.notify(structs.replace(step, node=f"node-{number}"))

    together(many, range(8))
    assert len([json.loads(text) for text in stream.getvalue().splitlines()]) == 801
