"""Screens of commands that say little: as `test_screens`."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.api.resources import CONFIGMAPS
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model.marks import MEMORY_NAME
from tests.apply.conftest import command
from tests.cli.screens import Screen, shown
from tests.cli.test_more_screens import still
from tests.cli.test_screens import WIDTHS, hold
from tests.ended import end_of, start
from tests.server.conftest import CALM, Client, Serving, marks_of, victim
from tests.waiting import wait_until

REASON = "disk swap in rack 7, see ticket 4711, until the supplier has been here"
IN_TURN = {
    "pause": ("pause", "worker-1", "worker-2", "--reason", REASON, "--until", "8h"),
    "paused-status": ("status",),
    "paused-plan": ("plan",),
    "pause-all": ("pause", "--all", "--reason", REASON),
    "unpause": ("unpause", "--all"),
}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(scale(load_scenario("default"), 6), directory=tmp_path_factory.mktemp("lab"), speed=30) as lab:
        yield lab


def steady(screen: Screen) -> Screen:
    """Without who paused, and the machine's speed."""
    told = still(screen)
    lines = [re.sub(r"\b\S+@\S+(?= (at|on|since|until|by)\b|,|:)", "user@machine", line) for line in told.lines]
    lines = [re.sub(r"(?<=fleetlock-)(server/\S+|[0-9a-f]{12}\b)", "x", line) for line in lines]
    return Screen(told.code, lines, told.octets)


@pytest.mark.parametrize("width", WIDTHS)
def test_pauses(width: int, quiet: Lab, tmp_path: Path) -> None:
    for name, words in IN_TURN.items():
        screen = steady(shown(tmp_path, quiet.environment, words, width))
        assert screen.code in (ExitCode.OK, ExitCode.CHANGES), screen.text
        hold(name, width, screen)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """After a run in which a version failed on as many nodes as may."""
    home = tmp_path_factory.mktemp("home")
    with Lab.start(scale(load_scenario("rollback"), 8), directory=tmp_path_factory.mktemp("lab"), speed=40) as lab:
        ended = end_of(start(home, lab.environment, ("apply", "--yes", "--node", "worker-2")))
        assert ended.code == ExitCode.PARTIAL
        yield lab


@pytest.mark.parametrize("width", WIDTHS)
def test_holds_that_are_released(width: int, failed: Lab, tmp_path: Path) -> None:
    memory = failed.call(lambda: failed.store.get(CONFIGMAPS, MEMORY_NAME, "kube-system"))
    assert memory is not None
    screens = [shown(tmp_path, failed.environment, ("release", *words), width) for words in (["9.9.9"], ["--all"])]
    assert [screen.code for screen in screens] == [ExitCode.OK, ExitCode.OK]
    failed.call(lambda: failed.store.put(CONFIGMAPS, memory))
    for name, screen in zip(("release-unknown", "release"), screens, strict=True):
        hold(name, width, steady(screen))


@pytest.mark.parametrize("width", WIDTHS)
def test_slots_of_fleetlock(width: int, slots: Lab, tmp_path: Path) -> None:
    hold("fleetlock-status", width, steady(shown(tmp_path, slots.environment, ("fleetlock", "status"), width)))


@pytest.fixture(scope="module")
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A host that asked, and whose node's drain does not end."""
    scenario = scale(load_scenario("drain-hangs"), 5)
    with Lab.start(scenario, directory=tmp_path_factory.mktemp("lab"), speed=30) as lab:
        words = ("fleetlock", "--listen", "127.0.0.1:0", *CALM)
        client, server = Client(lab, victim(lab)), Serving(command(lab, tmp_path_factory.mktemp("home"), *words))
        try:
            client.ask(server)
            wait_until(lambda: marks_of(lab, client.node).get("phase") == "draining", 90)
            yield lab
        finally:
            server.end(signal.SIGKILL)
