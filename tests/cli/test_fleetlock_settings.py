"""The settings file of a group's commands: one table for all of them, beside those of other commands."""

from pathlib import Path

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import Command


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[fleetlock]\nslots = 0\n[apply]\nyes = true\n", "0 would take no node"),
        ("slots = 0\n[status]\noutput = 'json'\n", "0 would take no node"),
        ("[fleetlock]\nslotz = 1\n", "[fleetlock]: unknown setting 'slotz'"),
        ("[serve]\nslots = 1\n", "unknown table 'serve'"),
        ("[fleetlock]\ntls-cert = 'a'\n", "--tls-cert and --tls-key belong together"),
    ],
)
def test_the_server_reads_its_groups_table(text: str, reason: str, command: Command, home: Path) -> None:
    (home / "cluster.toml").write_text(text)
    ended = command("fleetlock", "--config", "cluster.toml")
    assert (ended.code, ended.stdout) == (ExitCode.USAGE, "")
    assert reason in ended.stderr


def test_other_commands_know_the_table(command: Command, home: Path) -> None:
    (home / "cluster.toml").write_text("[fleetlock]\nslots = 1\n[apply]\ncanary = 'x'\n")
    assert "unknown" not in command("fleetlock", "status", "--config", "cluster.toml").stderr
    assert "unknown" not in command("history", "--config", "cluster.toml").stderr
