"""Six hosts with Zincati and one server, from the staged update to the last release: nobody else does anything."""

from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from rollout.lab.hosts.zincati import PRE_REBOOT, STEADY_STATE
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.server.serving import await_true, serving

SPEED = 150


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    """Nobody is asked before the server is there: hosts try again every five minutes, of their own time."""
    return start_lab(msgspec.structs.replace(load_scenario("zincati"), fleetlock=""), speed=SPEED)


def way(lab: Lab, node: str) -> list[tuple[str, bool]]:
    """What a host asked and whether it was granted, without repetitions."""
    answers = ((answer.path, not answer.kind) for answer in lab.agents[node].answers)
    return [answer for answer, _ in groupby(answers)]


@pytest.mark.timeout(300)
def test_all_six_are_updated_one_after_the_other(lab: Lab, tmp_path: Path) -> None:
    with serving(lab, tmp_path) as server:
        lab.use_fleetlock(server.url)

        def done() -> bool:
            return all(lab.machines[name].reboots and way(lab, name)[-1] == (STEADY_STATE, True) for name in lab.agents)

        await_true(
            done, "every host is back and steady", seconds=240, said=lambda: str({n: way(lab, n) for n in lab.agents})
        )
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert all(version.now == "4152.2.0" for version in score.versions.values())
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.most_unavailable == 1
    for name in lab.agents:
        steps = way(lab, name)
        assert (PRE_REBOOT, True) in steps
        begun = steps.index((PRE_REBOOT, True))
        # a drain takes longer than an answer: each was told to come again
        assert steps[:begun] in (
            [(STEADY_STATE, True), (PRE_REBOOT, False)],
            [(STEADY_STATE, False), (STEADY_STATE, True), (PRE_REBOOT, False)],
        )
        assert steps[begun + 1 :] in ([(STEADY_STATE, True)], [(STEADY_STATE, False), (STEADY_STATE, True)])
