"""Signals that come twice, and a terminal that goes away."""

import os
import pty
import signal
from collections.abc import Iterable

import pytest

from rollout.cli import signals
from rollout.cli.terminal import Echo
from rollout.execution.base.deadline import GracefulStop


def read_all(numbers: Iterable[int], stop: GracefulStop) -> None:
    reading, writing = os.pipe()
    os.write(writing, bytes(numbers))
    os.close(writing)
    signals._stop_on_signals(reading, stop, "", None)
    os.close(reading)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_is_sent_twice_at_once_asks_once(
    second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `timeout` sends it, to its child and to the group that the child is in."""
    ends: list[GracefulStop] = []
    monkeypatch.setattr(signals, "_end_at_once", ends.append)
    stop = GracefulStop()
    read_all([second, signal.SIGTERM], stop)
    assert stop.is_due
    assert ends == []


def test_a_terminal_that_is_lost_changes_nothing() -> None:
    controller, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream, Echo(stream) as echo:
        echo._is_off = True
        os.close(controller)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, terminal)
        os.close(null)
        echo.turn_on()
