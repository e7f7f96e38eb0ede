"""A lab that is the whole purpose of its process: it serves until a signal ends it."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rollout.lab.scenario import Scenario
from rollout.lab.scoreboard import Scoreboard
from rollout.lab.simulation import simulation

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def serve(
    scenario: Scenario, *, directory: Path, speed: float, on_ready: Callable[[dict[str, str]], None]
) -> Scoreboard:
    """Serve until SIGINT or SIGTERM, and return what the cluster saw; raises RolloutError.

    `on_ready` is given the environment variables that make clients use the lab.
    """
    return asyncio.run(_serve(scenario, directory, speed, on_ready))


async def _serve(
    scenario: Scenario, directory: Path, speed: float, on_ready: Callable[[dict[str, str]], None]
) -> Scoreboard:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, ended.set)
    try:
        async with simulation(scenario, directory=directory, speed=speed) as running:
            on_ready(running.files.environment(running.fleet.shared_port))
            await ended.wait()
            return running.keeper.scoreboard()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
