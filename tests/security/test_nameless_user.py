"""A user that is a mere number, without a home, on a root that cannot be written to: as a pod with runAsUser is.

Everything works, but for what OpenSSH's own client does: it takes users with names only, and that is said.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.conftest import StartLab
from tests.ended import Ended

TINY = str(Path(__file__).parents[1] / "cli" / "tiny.yaml")
UID = "12345"
# What is root's alone in this machine stays readable: an image has it readable for everybody.
NAMELESS = f"""
set -e
mount -t tmpfs tmpfs /run
cp "$LAB"/* "$FILES"/* /run
chown -R {UID} /run
mount -o remount,ro /run
mount -o remount,ro,bind /
if mount --rbind /tmp /tmp; then mount -o remount,ro,bind /tmp; fi
cd /
exec setpriv --reuid={UID} --regid={UID} --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$@"
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="takes a mount namespace and another user"),
    pytest.mark.exhaustive,
]


def rollout(lab: Lab, *arguments: str, files: Path | None = None, variables: dict[str, str] | None = None) -> Ended:
    """The real program as that user; nothing but the lab's variables and these in its environment.

    What is in the lab's folder, and in that of the `files`, is in /run.
    """
    given = {name: value.replace(str(lab.directory), "/run") for name, value in lab.environment.items()}
    folders = {"LAB": str(lab.directory), "FILES": str(files or lab.directory)}
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", NAMELESS, "sh", sys.executable, "-m", "rollout", *arguments],
        env={"PATH": os.environ["PATH"], **given, **folders, **(variables or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def lab(start_lab: StartLab) -> Lab:
    return start_lab(load_scenario(TINY))


@pytest.mark.parametrize("home", [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}], ids=str)
def test_a_rollout_goes_its_way(lab: Lab, home: dict[str, str]) -> None:
    """The journal is missed by one warning, which names the way out; who runs it goes by the number."""
    ended = rollout(lab, "apply", "--yes", "-o", "json", "--set", "gates.command=true", variables=home)
    assert ended.code == ExitCode.OK, ended.stderr
    assert len(ended.summary["succeeded"]) == 3
    assert ended.stderr.count("no journal is written") == 1
    assert "XDG_STATE_HOME" in ended.stderr
    assert lab.scoreboard().clean


@pytest.mark.sample
@pytest.mark.parametrize("command", [("status",), ("plan",), ("doctor",), ("history",), ("inventory", "--list")])
def test_every_command_works(lab: Lab, command: tuple[str, ...]) -> None:
    ended = rollout(lab, *command)
    assert ended.code == ExitCode.OK, ended.stderr


def test_a_key_that_cannot_be_kept_is_told_of_each_host(lab: Lab) -> None:
    ended = rollout(lab, "status", "--host-key-checking", "accept-new", variables={"ROLLOUT_KNOWN_HOSTS": ""})
    assert ended.code == ExitCode.OK, ended.stderr
    assert "its new host key cannot be written to /.ssh/known_hosts" in " ".join(ended.stdout.split())


def test_what_openssh_refuses_names_the_way_out(lab: Lab, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "ssh_config").write_text("Match exec true\n  ConnectTimeout 5\n")
    ended = rollout(lab, "status", "--ssh-config", "/run/ssh_config", files=files)
    assert ended.code == ExitCode.ERROR
    error, hint = ended.stderr.splitlines()
    assert f"No user exists for uid {UID}" in error
    assert "/etc/passwd" in hint


def test_so_does_ansible(lab: Lab) -> None:
    """Its own temporary files are not in a home that there is none of."""
    pytest.importorskip("ansible_runner")
    ended = rollout(lab, "status", "--executor", "ansible", variables={"ROLLOUT_SSH_CONFIG": ""})
    assert f"No user exists for uid {UID}" in ended.stdout
