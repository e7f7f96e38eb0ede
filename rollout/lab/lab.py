import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

from rollout.lab.api.faults import ApiFault
from rollout.lab.scenario import Scenario
from rollout.lab.scoreboard import Scoreboard
from rollout.lab.simulation import LabFiles, Simulation, simulation

T = TypeVar("T")

_CALL_SECONDS: Final = 60.0


class Lab(LabFiles):
    """A lab in a thread of its own. Its methods may be called from any thread.

    `store`, `world`, `api`, `machines`, `agents` (Zincati by host), `faults` and `requests` belong
    to the lab's event loop: use them inside `call` or `run` only. `ssh_port` is None if each host
    has its own.
    """

    def __init__(self, scenario: Scenario, *, directory: Path, speed: float = 1.0) -> None:
        """Return when the lab serves. `speed` is simulated seconds per real second."""
        self.scenario = scenario
        self._ready: Future[Simulation] = Future()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._main, args=(directory, speed), name="rollout-lab", daemon=True
        )
        self._thread.start()
        running = self._simulation = self._ready.result()
        super().__init__(running.files.directory)
        self.ssh_port = running.fleet.shared_port
        self.environment = self.variables(self.ssh_port)
        self.store = running.store
        self.world = running.world
        self.api = running.api
        self.faults = running.api.faults
        self.requests = running.api.requests
        self.machines = running.fleet.machines
        self.agents = running.fleet.agents

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Raise once what ended the loop early."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def call(self, function: Callable[[], T]) -> T:
        async def call_function() -> T:
            return function()

        return self.run(call_function)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        async def await_function() -> T:
            return await function()

        if self._loop is None:
            raise RuntimeError("the lab is not running")
        future = asyncio.run_coroutine_threadsafe(await_function(), self._loop)
        return future.result(_CALL_SECONDS)

    def inflict(self, *faults: ApiFault) -> None:
        """The faults' times count from now."""
        for fault in faults:
            self.call(partial(self.faults.add, fault))

    def struck(self, fault: ApiFault) -> int:
        return self.call(lambda: self.faults.struck(fault))

    def use_fleetlock(self, base_url: str) -> None:
        self.call(lambda: self._simulation.fleet.use_fleetlock(base_url))

    def scoreboard(self) -> Scoreboard:
        return self.call(self._simulation.keeper.scoreboard)

    def _main(self, directory: Path, speed: float) -> None:
        try:
            asyncio.run(self._serve(directory, speed))
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            if self._ready.done():
                self._failure = error
            else:
                self._ready.set_exception(error)

    async def _serve(self, directory: Path, speed: float) -> None:
        self._loop = asyncio.get_running_loop()
        async with simulation(self.scenario, directory=directory, speed=speed) as running:
            self._ready.set_result(running)
            await self._stopping.wait()


def serve(
    scenario: Scenario, *, directory: Path, speed: float, on_ready: Callable[[Lab], None]
) -> Scoreboard:
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    with Lab(scenario, directory=directory, speed=speed) as lab:
        on_ready(lab)
        ended.wait()
        return lab.scoreboard()
