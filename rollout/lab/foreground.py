"""A lab that is the whole purpose of its process: it serves until a signal ends it."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from rollout.lab.credentials import InventoryHost
from rollout.lab.scenario import Scenario
from rollout.lab.scoreboard import Scoreboard
from rollout.lab.simulation import simulation

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


OnReady: TypeAlias = Callable[[dict[str, str], InventoryHost], None]
"""It is given the environment variables that make clients use the lab, and the first of its hosts."""


def serve(scenario: Scenario, *, directory: Path, speed: float, on_ready: OnReady) -> Scoreboard:
    """Serve until SIGINT or SIGTERM, and return what the cluster saw; raises RolloutError."""
    return asyncio.run(_serve(scenario, directory, speed, on_ready))


async def _serve(scenario: Scenario, directory: Path, speed: float, on_ready: OnReady) -> Scoreboard:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, ended.set)
    try:
        async with simulation(scenario, directory=directory, speed=speed) as running:
            on_ready(running.files.environment(running.fleet.shared_port), running.fleet.inventory[0])
            await ended.wait()
            return running.keeper.scoreboard()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
