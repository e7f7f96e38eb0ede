"""What the real program shows on a terminal before its answer: silence of seconds looks like a hang."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.cli.screens import shown
from tests.ended import end_of, start

TINY = str(Path(__file__).with_name("tiny.yaml"))
STAGES = {
    "status": ("reading the nodes", "asking hosts"),
    "check-update": ("reading the nodes", "asking hosts"),
    "plan": ("reading the cluster", "asking hosts", "making the plan"),
    "doctor": ("reading the nodes", "asking hosts", "examining hosts", "reading the cluster", "making the plan"),
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
    ended = end_of(start(tmp_path, lab.environment, (command,)))
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


def test_a_selection_that_is_wholly_excluded_is_said_to_be(lab: Lab, tmp_path: Path) -> None:
    warning = "warning: --exclude leaves none of the selected nodes: worker-1"
    selection = ("--node", "worker-1", "--exclude", "worker-1")
    for command in ("status", "plan", "doctor", "check-update"):
        ended = end_of(start(tmp_path, lab.environment, (command, *selection)))
        assert (ended.code, ended.stderr.splitlines()[0]) == (ExitCode.OK, warning)
        if command == "status":
            assert ended.stdout == "No node is left to show: all that are selected are excluded.\n"
        if command == "doctor":
            assert re.search(r"! nodes .* 0 of \d+ nodes are selected: no host is asked", ended.stdout)


@pytest.mark.parametrize(
    ("words", "stage"),
    [("known-hosts", "asking hosts for their keys"), ("apply --dry-run --allow idle", "asking the API server about")],
)
def test_what_else_takes_long_is_shown_too(words: str, stage: str, lab: Lab, tmp_path: Path) -> None:
    screen = shown(tmp_path, lab.environment, tuple(words.split()), 80)
    assert screen.code == ExitCode.OK, screen.text
    assert stage.encode() in screen.octets
    assert stage not in screen.text


@pytest.mark.parametrize("words", ["lab scenarios", "apply --dry-run --allow idle", "operate --once --node worker-1"])
def test_no_word_is_broken_at_the_edge(words: str, lab: Lab, tmp_path: Path) -> None:
    screen = shown(tmp_path, lab.environment, tuple(words.split()), 40)
    assert screen.code == ExitCode.OK, screen.text
    written = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.octets.decode()).splitlines()
    assert [line for line in written if len(line.rpartition("\r")[2]) > 40] == []
