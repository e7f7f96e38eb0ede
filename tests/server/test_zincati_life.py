"""Six hosts with Zincati and one server, from the staged update to the last release: nobody else
does anything.
"""

import re
import ssl
from itertools import groupby
from pathlib import Path

import msgspec
import pytest

from rollout.lab.hosts.zincati import ANCHORS, DROP_IN, PRE_REBOOT, STEADY_STATE
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.server.conftest import new_certificate, serving
from tests.waiting import wait_until

pytestmark = pytest.mark.exhaustive

SPEED = 150
STEADY = (STEADY_STATE, True)
ASKED = (PRE_REBOOT, True)
TOLD_TO_WAIT = (PRE_REBOOT, False)
EARLY = (STEADY_STATE, False)


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    """No host sends a request before the server runs: hosts without settings wait for them."""
    return start_lab(msgspec.structs.replace(load_scenario("zincati"), fleetlock=""), speed=SPEED)


def way(lab: Lab, node: str) -> list[tuple[str, bool]]:
    """What a host requested and whether it was granted, without repetitions."""
    answers = ((answer.path, not answer.kind) for answer in lab.agents[node].answers)
    return [answer for answer, _ in groupby(answers)]


def give_drop_in(lab: Lab, url: str, *, authority: str) -> None:
    """The documented file becomes one of each host, with the authority of the server's certificate."""
    page = (Path(__file__).parents[2] / "docs" / "fleetlock.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(# /etc/zincati/config\.d/.*?)```", page, flags=re.DOTALL)
    drop_in = text.replace("https://10.96.0.15/", url.removesuffix("v1/")).replace(
        '"workers"', '"default"'
    )

    def write() -> None:
        for name in lab.agents:
            lab.machines[name].files |= {f"{ANCHORS}lab.pem": authority, DROP_IN: drop_in}

    lab.call(write)


def test_all_six_are_updated_one_after_the_other(lab: Lab, tmp_path: Path) -> None:
    certificate, key = new_certificate(tmp_path)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with serving(
        lab, tmp_path, *tls, context=ssl.create_default_context(cafile=str(certificate))
    ) as server:
        give_drop_in(lab, server.url, authority=certificate.read_text())

        def done() -> bool:
            return all(
                lab.machines[name].reboots and way(lab, name)[-1] == STEADY for name in lab.agents
            )

        wait_until(done, 240)
    score = lab.scoreboard()
    assert set(score.reboots.values()) == {1}
    assert all(version.now == "4152.2.0" for version in score.versions.values())
    assert score.killed == ()
    assert score.budgets_broken == ()
    assert score.rebooted_undrained == ()
    assert score.cordons_left == ()
    assert score.annotations_left == {}
    assert score.most_unavailable == 1
    for name in lab.agents:
        steps = way(lab, name)
        begun = steps.index(ASKED)
        # a drain takes longer than an answer, and a kubelet longer than Zincati: each was told to
        # come again
        assert steps[:begun] == [STEADY, TOLD_TO_WAIT]
        assert steps[begun + 1 :] in ([STEADY], [EARLY, STEADY])
