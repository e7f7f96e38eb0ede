import io
from dataclasses import replace

import pytest
from rich.console import Console

from rollout.model.progress import NodeFinished, NodeStep, Notice, Phase, StepEvent
from rollout.report.live import LiveProgress
from rollout.report.observers import Unfailing
from rollout.report.plain import PlainLines
from rollout.report.sentences import sentence
from tests.report.builders import AT
from tests.report.test_json_lines import EVENTS, FAILED


def screen(*events: StepEvent, width: int = 120) -> str:
    """What a terminal has been sent, without colours, while all these happened."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None, highlight=False)
    with LiveProgress(console) as live:
        for event in events:
            live.notify(event)
        live._live.refresh()
    return stream.getvalue()


def test_plain_lines_have_the_time_and_one_line_an_event() -> None:
    stream = io.StringIO()
    lines = PlainLines(stream)
    for event in EVENTS:
        lines.notify(event)
    told = stream.getvalue().splitlines()
    assert len(told) == len(EVENTS)
    assert all(line[2] == ":" and line[5] == ":" for line in told)
    assert told[2].endswith("node-1: draining, 3 pods left")
    assert told[4].endswith("node-1: succeeded after 30s, now on 4081.2.1")


def test_a_blocked_pod_names_its_budget_and_the_time_left() -> None:
    told = "node-1: shop/cart-1 is held back by shop/cart: needs 2 healthy pods; waits 0s, 9m00s left"
    assert sentence(EVENTS[3]) == told


def test_a_node_left_cordoned_is_told_so() -> None:
    left = NodeFinished(AT, replace(FAILED, left_cordoned=True))
    assert sentence(left).endswith("it runs the old version (left cordoned)")


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_every_event_is_one_printable_line(event: StepEvent) -> None:
    assert sentence(event)
    assert "\n" not in sentence(event)


def test_the_board_shows_who_is_in_flight_and_what_it_waits_for() -> None:
    shown = screen(*EVENTS[:4])
    assert "shop/cart-1 is held back by shop/cart" in shown
    assert "draining" in shown
    assert "0 of 3 nodes" in shown
    assert "wave 1 of 2" in shown


def test_finished_nodes_are_printed_above_and_counted() -> None:
    shown = screen(*EVENTS[:5], NodeFinished(AT, FAILED))
    assert "✔ node-1: succeeded" in shown
    assert "✘ node-2: rolled-back" in shown
    assert "2 of 3 nodes, 1 failed" in shown


def test_no_escape_of_a_host_reaches_the_terminal() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J"
    shown = screen(NodeStep(AT, "node-1", Phase.DRAINING, evil), Notice(AT, evil))
    assert "owned" in shown
    assert "\x1b]0" not in shown
    assert "\x1b[2J" not in shown


def test_a_narrow_terminal_is_no_error() -> None:
    assert "node-1" in screen(*EVENTS[:4], width=30)


class _Broken:
    def __init__(self) -> None:
        self.calls = 0

    def notify(self, event: StepEvent) -> None:
        self.calls += 1
        raise BrokenPipeError


def test_a_broken_observer_stops_nothing_and_is_left_alone() -> None:
    broken = _Broken()
    observer = Unfailing(broken)
    observer.notify(EVENTS[0])
    observer.notify(EVENTS[1])
    assert broken.calls == 1
    assert isinstance(observer.failure, BrokenPipeError)
