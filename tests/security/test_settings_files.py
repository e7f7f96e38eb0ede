"""Somebody leaves a file where an operator will stand: `ansible.cfg` in /tmp, in a shared folder, in a checkout or an
archive. Obeyed, it runs programs. The rule: it counts only where it is the operator's own; settings of rollout itself
count only from a file that is named; and no module of Python is taken from the current folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

import pytest

from rollout.adapters.local_files import Reader, current_reader, distrust
from rollout.adapters.ssh import workers
from rollout.errors import ExitCode
from rollout.gather.hosts.side_by_side import Answer
from rollout.model.host import Host
from tests.conftest import StartLab
from tests.ended import Ended, invoked

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")
ANSIBLE = Path(sys.executable).with_name("ansible-playbook")
needs_ansible = pytest.mark.skipif(not ANSIBLE.exists(), reason="ansible-core is not installed")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An operator's home, where a kubeconfig lies whose login program tells that it ran."""
    made = tmp_path / "home"
    made.mkdir(mode=0o755)
    program = made / "login"
    program.write_text(f"#!/bin/sh\ntouch {made}/ran\nexit 1\n")
    program.chmod(0o755)
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program), "interactiveMode": "Never"}
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"exec": login}}],
        "current-context": "x",
    }
    (made / "theirs.json").write_text(json.dumps(document))
    return made


def rollout(home: Path, *arguments: str, **variables: str) -> Ended:
    return invoked(home, variables, arguments)


def settings(home: Path, text: str = "canary = 2\n", mode: int = 0o644) -> Path:
    path = home / "rollout.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_users_own_group_is_nobody_else(tmp_path: Path) -> None:
    """As with umask 002 where each user has a group of their own."""
    path = settings(tmp_path, mode=0o664)
    owner = path.stat()
    assert distrust(path, Reader(owner.st_uid, frozenset({owner.st_gid}))) == ""
    assert "may be written by others (mode 0664)" in distrust(path, Reader(owner.st_uid, frozenset()))
    path.chmod(0o644)
    assert distrust(path, current_reader()) == ""


def test_what_belongs_to_neither_us_nor_root_is_distrusted(tmp_path: Path) -> None:
    path = settings(tmp_path)
    stranger = Reader(path.stat().st_uid + 1, frozenset())
    belongs_to_root = path.stat().st_uid == 0
    assert bool(distrust(path, stranger)) is not belongs_to_root


PLUGIN = """
from pathlib import Path
Path({marker!r}).touch()
from ansible.plugins.inventory import BaseInventoryPlugin
class InventoryModule(BaseInventoryPlugin):
    NAME = "theirs"
    def verify_file(self, path):
        return False
"""


@needs_ansible
def test_ansible_cfg_of_others_runs_nothing(home: Path, start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=4)
    marker = home / "ran"
    (home / "plugins").mkdir()
    (home / "plugins" / "theirs.py").write_text(PLUGIN.format(marker=str(marker)))
    cfg = "[defaults]\ninventory_plugins = ./plugins\n[inventory]\nenable_plugins = theirs, yaml\n"
    (home / "ansible.cfg").write_text(cfg)
    home.chmod(0o777)
    flags = ("status", "--executor", "ansible", "-i", str(lab.directory / "inventory.yaml"))
    variables = {**lab.environment, "ANSIBLE_LOCAL_TEMP": str(home / "tmp")}
    ended = rollout(home, *flags, **variables)
    assert ended.code == ExitCode.USAGE
    assert "ansible.cfg of the current folder is refused: the folder" in ended.stderr
    assert not marker.exists()
    rollout(home, *flags, **variables, ANSIBLE_CONFIG="ansible.cfg")
    assert marker.exists()


def _nobody(_hosts: Mapping[str, Host]) -> Generator[tuple[str, Answer]]:
    yield from ()


def test_no_module_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of large fleets and the dynamic inventory start where the operator stands."""
    marker = tmp_path / "ran"
    (tmp_path / "msgspec.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    asked = workers.ShellSettings(None, None, (), 1.0, 1)
    ask = partial(workers.in_processes, asked, {}, "true", timeout=5, concurrency=1, workers=1)
    assert list(ask(ask_here=_nobody)) == []
    script = Path(__file__).parents[2] / "inventory" / "nodes.py"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, str(script), "--list"], env=environment, capture_output=True, check=False)
    assert not marker.exists()
