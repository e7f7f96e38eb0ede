"""What the real program shows on a terminal before its answer: silence of seconds looks like a hang."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.cli.screens import shown
from tests.ended import invoked

TINY = str(Path(__file__).with_name("tiny.yaml"))
STAGES = {
    "status": ("reading the nodes", "asking hosts"),
    "check-update": ("reading the nodes", "asking hosts"),
    "plan": ("reading the cluster", "asking hosts", "making the plan"),
    "doctor": ("reading the nodes", "asking hosts", "reading the cluster", "making the plan"),
}
HIDDEN = b"\x1b[?25l"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.start(load_scenario(TINY), directory=tmp_path_factory.mktemp("lab"), speed=30) as lab:
        yield lab


@pytest.mark.parametrize("command", STAGES)
def test_each_stage_is_shown_while_it_lasts(command: str, lab: Lab, tmp_path: Path) -> None:
    screen = shown(tmp_path, lab.environment, (command,), 80)
    places = [screen.octets.find(stage.encode()) for stage in STAGES[command]]
    assert -1 not in places
    assert places == sorted(places)
    assert not any(stage in screen.text for stage in STAGES[command])


@pytest.mark.parametrize("command", STAGES)
def test_no_stage_is_shown_in_a_pipe_or_on_a_dumb_terminal(command: str, lab: Lab, tmp_path: Path) -> None:
    ended = invoked(tmp_path, lab.environment, (command,))
    dumb = shown(tmp_path, {**lab.environment, "TERM": "dumb"}, (command,), 80)
    for stage in STAGES[command]:
        assert stage not in ended.stderr + ended.stdout
        assert stage.encode() not in dumb.octets


@pytest.mark.parametrize("words", ["status", "apply --yes --allow idle --node worker-1"])
def test_the_cursor_is_never_taken(words: str, lab: Lab, tmp_path: Path) -> None:
    """What Ctrl-Z stops, or a kill ends, could not give it back to the shell."""
    screen = shown(tmp_path, lab.environment, tuple(words.split()), 80)
    assert screen.code == ExitCode.OK
    assert HIDDEN not in screen.octets
