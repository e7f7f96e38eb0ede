"""A user that is a mere number, without a home, on a root that cannot be written to: as a pod with runAsUser is."""

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
cp "$LAB"/* /run
chown -R {UID} /run
mkdir /run/tmp
mount -o remount,ro /run
mount -t tmpfs -o mode=1777 tmpfs /run/tmp
mount -o remount,ro,bind /
if mount --rbind /tmp /tmp; then mount -o remount,ro,bind /tmp; fi
cd /
exec setpriv --reuid={UID} --regid={UID} --clear-groups --inh-caps=+dac_read_search --ambient-caps=+dac_read_search "$@"
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="takes a mount namespace and another user"),
    pytest.mark.exhaustive,
]


def rollout(lab: Lab, *arguments: str, variables: dict[str, str]) -> Ended:
    """The real program as that user; nothing but the lab's variables and these in its environment.

    What is in the lab's folder is in /run; temporary files alone have a place of their own, as an emptyDir is.
    """
    given = {name: value.replace(str(lab.directory), "/run") for name, value in lab.environment.items()}
    folders = {"LAB": str(lab.directory), "TMPDIR": "/run/tmp"}
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", NAMELESS, "sh", sys.executable, "-m", "rollout", *arguments],
        env={"PATH": os.environ["PATH"], **given, **folders, **variables},
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
