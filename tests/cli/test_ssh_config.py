"""The operator's own ~/.ssh/config, as the program goes by it."""

import json
from pathlib import Path

from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.ended import Ended

TINY = str(Path(__file__).with_name("tiny.yaml"))


def errors(ended: Ended) -> set[str]:
    return {row["error"] for row in json.loads(ended.stdout)["nodes"]}


def write_config(home: Path, text: str) -> None:
    (home / ".ssh").mkdir(exist_ok=True)
    (home / ".ssh" / "config").write_text(text)


def test_own_configuration_is_followed_and_told_otherwise(start_lab: StartLab, command: Command, home: Path) -> None:
    lab: Lab = start_lab(TINY, nodes=3)
    environment = {name: value for name, value in lab.environment.items() if name != "ROLLOUT_SSH_CONFIG"}

    def status(*options: str) -> Ended:
        return command("status", "-o", "json", *options, variables=environment)

    write_config(home, "Host *\n  User somebody\nHost elsewhere\n  BindAddress 10.0.0.1\nMatch host x exec true\n")
    followed = errors(status())
    assert len(followed) == 3
    assert all("the host refuses user somebody" in error for error in followed)
    for way_out in (("--ssh-config", "none"), ("--ssh-user", "core")):
        assert errors(status(*way_out)) == {""}
    write_config(home, "Host *\n  BindAddress 10.0.0.1\n")
    refused = status()
    assert refused.code == 1
    assert "sets bindaddress for" in refused.stderr
    assert "--ssh-config FILE, or none" in refused.stderr


def test_only_selected_hosts_are_asked_about(start_lab: StartLab, command: Command, home: Path) -> None:
    """A configuration that cannot be followed for a host that nobody asked for stands in nobody's way."""
    lab: Lab = start_lab(TINY, nodes=3)
    environment = {name: value for name, value in lab.environment.items() if name != "ROLLOUT_SSH_CONFIG"}
    write_config(home, f'Match exec "echo %n >> {home}/asked"\n  User core\nMatch host worker-2\n  BindAddress ::1\n')
    for options in (("--node", "worker-1"), ("--exclude", "worker-2", "--node", "worker-1,worker-2")):
        (home / "asked").unlink(missing_ok=True)
        ended = command("status", "-o", "json", *options, variables=environment)
        assert errors(ended) == {""}, ended.stderr
        asked = set((home / "asked").read_text().split())
        assert "worker-1" in asked
        assert "worker-2" not in asked
    assert "sets bindaddress for worker-2" in command("status", variables=environment).stderr
