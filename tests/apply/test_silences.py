"""Alerts of nodes under way, silenced in Alertmanager by the real program, and by nobody once it is
dead.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.silences import NodeSilences
from rollout.lab.lab import Lab
from rollout.model.progress import NodeFinished, NodeStep, Outcome, Phase
from tests.apply.conftest import Rollout, Started, killed_at
from tests.scripted_api import Exchange, scripted
from tests.state import is_cordoned, node_of
from tests.waiting import wait_until

ONE = ("apply", "--yes", "-o", "json", "--node", "worker-1", "--set", "waves.health-checks=1")


@dataclass
class Alertmanager:
    """As far as silences go; `seen` says of each that was posted whether its node was cordoned by
    then.
    """

    url: str = ""
    lab: Lab | None = None
    status: int = 200
    posted: list[dict[str, Any]] = field(default_factory=list)
    seen: list[bool] = field(default_factory=list)
    standing: dict[str, dict[str, Any]] = field(default_factory=dict)

    def post(self, silence: dict[str, Any]) -> str:
        self.posted.append(silence)
        if self.lab is not None:
            self.seen.append(is_cordoned(self.lab, "worker-1"))
        self.standing.pop(silence.get("id", ""), None)
        self.standing[f"s-{len(self.posted)}"] = silence
        return f"s-{len(self.posted)}"


@pytest.fixture
def alertmanager() -> Iterator[Alertmanager]:
    state = Alertmanager()

    def answer(exchange: Exchange) -> None:
        if exchange.command == "DELETE":
            gone = state.standing.pop(exchange.path.removeprefix("/prefix/api/v2/silence/"), None)
            exchange.answer(404 if gone is None else 200, b"{}")
            return
        silence = json.loads(exchange.payload)
        is_known = (
            silence.get("id", "") in ("", *state.standing)
            and exchange.path == "/prefix/api/v2/silences"
        )
        status = state.status if is_known else 404
        exchange.answer(
            status, json.dumps({"silenceID": state.post(silence)} if status == 200 else {}).encode()
        )

    with scripted(answer) as server:
        state.url = f"{server.url}/prefix/"
        yield state


def flags(alertmanager: Alertmanager) -> tuple[str, ...]:
    return (
        *("--set", f"alerts.alertmanager-url={alertmanager.url}"),
        *("--set", "alerts.silence=instance"),
    )


def seconds_left(silence: dict[str, Any]) -> float:
    return (datetime.fromisoformat(silence["endsAt"]) - datetime.now(UTC)).total_seconds()


def test_a_node_is_silenced_from_before_its_cordon_until_it_has_ended(
    started: Started, rollout: Rollout, alertmanager: Alertmanager
) -> None:
    lab = alertmanager.lab = started("default", 6)
    rollout(lab, *ONE, *flags(alertmanager)).ends(0)
    assert not alertmanager.seen[0]
    assert alertmanager.standing == {}
    (matcher,) = alertmanager.posted[0]["matchers"]
    assert matcher["name"] == "instance"
    assert matcher["isRegex"]
    assert matcher["isEqual"]
    address = node_of(lab, "worker-1")["status"]["addresses"][0]["address"]
    assert all(
        re.fullmatch(matcher["value"], value)
        for value in ("worker-1", "worker-1:9100", f"{address}:9100")
    )
    assert not re.fullmatch(matcher["value"], "worker-10")
    rollout(lab, *ONE, "--set", "alerts.silence=node").ends(64)


def test_an_instance_of_ipv6_is_in_brackets(alertmanager: Alertmanager) -> None:
    addresses = {"w-1": "fd00::1"}
    with NodeSilences(
        alertmanager.url, "instance", addresses, SystemClock(), lambda _told: None
    ) as silences:
        silences.notify(step("w-1", Phase.PENDING))
        wait_until(lambda: bool(alertmanager.posted))
    (matcher,) = alertmanager.posted[0]["matchers"]
    for instance in ("[fd00::1]:9100", "fd00::1", "w-1:9100"):
        assert re.fullmatch(matcher["value"], instance)
    assert not re.fullmatch(matcher["value"], "[fd00::10]:9100")


def test_what_a_killed_run_has_silenced_ends_by_itself(
    started: Started, alertmanager: Alertmanager, tmp_path: Path
) -> None:
    assert (
        killed_at(started("default", 6), tmp_path, "drained", *ONE, *flags(alertmanager))
        == "worker-1"
    )
    (silence,) = alertmanager.standing.values()
    assert 0 < seconds_left(silence) <= timedelta(minutes=5).total_seconds()


def step(node: str, phase: Phase) -> NodeStep:
    return NodeStep(datetime.now(UTC), node, phase)


def test_a_silence_is_renewed_while_its_node_is_under_way_and_had_again_after_an_outage(
    alertmanager: Alertmanager,
) -> None:
    told: list[str] = []
    with NodeSilences(
        alertmanager.url, "node", {}, SystemClock(speedup=2400), told.append
    ) as silences:
        silences.notify(step("refused", Phase.PENDING))
        silences.notify(step("w-1", Phase.PENDING))
        silences.notify(step("w-1", Phase.CORDONED))
        wait_until(lambda: len(alertmanager.posted) > 5)
        assert [silence.get("id") for silence in alertmanager.posted[2:6]] == [
            f"s-{number}" for number in range(2, 6)
        ]
        assert {silence["comment"].split()[0] for silence in alertmanager.posted[2:]} == {"w-1"}
        alertmanager.status = 503
        wait_until(lambda: len(told) == 1)
        posted = len(alertmanager.posted)
        # it has lost what it knew
        alertmanager.standing.pop(f"s-{posted}")
        alertmanager.status = 200
        wait_until(lambda: len(alertmanager.posted) > posted)
        assert "id" not in alertmanager.posted[posted]
        silences.notify(NodeFinished(datetime.now(UTC), "w-1", Outcome.SUCCEEDED, Phase.DONE))
        assert [silence["comment"].split()[0] for silence in alertmanager.standing.values()] == [
            "refused"
        ]
    assert not alertmanager.standing
    assert told == [
        "warning: alerts of nodes that reboot are not silenced: Alertmanager responds with status 503"
    ]
