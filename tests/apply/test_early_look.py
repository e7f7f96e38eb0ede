"""The next wave's hosts are observed while the cluster settles."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.cli.wiring import HURRIED_VARIABLE
from rollout.gather.hosts.probe_command import is_probe
from rollout.lab.hosts.commands import answer
from rollout.lab.hosts.session import CommandOutput, ShellSession
from tests.apply.conftest import Started
from tests.ended import invoked

# The pause before the last look at a settled cluster takes two seconds.
SLOW = {HURRIED_VARIABLE: "0.5"}


def test_the_next_host_is_observed_before_its_wave_starts(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes = list[tuple[float, str]]()

    async def noted(session: ShellSession, line: str) -> CommandOutput:
        if is_probe(line):
            probes.append((time.time(), session.machine.name))
        return await answer(session, line)

    monkeypatch.setattr("rollout.lab.hosts.ssh_server.answer", noted)
    lab = started("default", 5)
    flags = ("--yes", "-o", "json", "--node", "worker-1,worker-2", "--max-unavailable", "1")
    ended = invoked(tmp_path, {**lab.environment, **SLOW}, ("apply", *flags)).ends(0)
    second = ended.plan["waves"][1]["nodes"][0]["name"]
    settling, starting = between_waves(ended.lines)
    assert [node for at, node in probes if settling < at < starting] == [second]
    cordoned = next(
        at_of(line)
        for line in ended.lines
        if line.get("node") == second and line.get("edge") == "cordoned"
    )
    assert not [node for at, node in probes if starting < at < cordoned]


def between_waves(lines: list[dict[str, Any]]) -> tuple[float, float]:
    """When the first wave's node has finished, and when the second wave starts."""
    finished = next(at_of(line) for line in lines if line["type"] == "node_finished")
    _, starting = (at_of(line) for line in lines if line["type"] == "wave_started")
    return finished, starting


def at_of(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["at"]).timestamp()
