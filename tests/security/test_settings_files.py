"""Somebody leaves a settings file where an operator will stand: `rollout.toml` in /tmp, in a shared
folder, in a checkout or an archive. Obeyed, it runs commands (`gate-command`, a kubeconfig's login
program), leads to other hosts, or says yes. The rule: a file that nobody named counts only where it
is the operator's own, and even then it may only tune; what runs programs, chooses trust, writes
files or consents counts from flags, the environment, and a file named with `--config`. The same
holds for `ansible.cfg`, and no module of Python is taken from the current folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

import pytest

from rollout.adapters.file_owners import Reader, current_reader, distrust
from rollout.adapters.ssh import workers
from rollout.adapters.ssh.connection import Patience
from rollout.cli.settings.reserved import RESERVED, TUNING
from rollout.errors import ExitCode
from rollout.gather.hosts.side_by_side import Answer
from rollout.model.host import Host
from tests.conftest import StartLab
from tests.docs.reference import options
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


def assert_refused(ended: Ended, *words: str) -> None:
    assert ended.code == ExitCode.USAGE
    assert ended.stderr.startswith("rollout: error: rollout.toml of the current folder is refused: "), ended.stderr
    assert "hint: To use it: --config rollout.toml" in ended.stderr
    assert all(word in ended.stderr for word in words), ended.stderr


@as_root
def test_a_file_of_another_user_runs_nothing(home: Path) -> None:
    os.chown(settings(home, 'kubeconfig = "theirs.json"\n'), NOBODY, 0)
    assert_refused(rollout(home, "status"), "rollout.toml belongs to nobody")
    assert not (home / "ran").exists()


def test_a_file_that_anybody_may_write_is_refused(home: Path) -> None:
    settings(home, mode=0o666)
    assert_refused(rollout(home, "status"), "rollout.toml may be written by others (mode 0666)")


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_file_in_a_folder_that_anybody_may_write_is_refused(home: Path, mode: int) -> None:
    """A sticky folder is no better: whoever came first has left the file there."""
    settings(home)
    home.chmod(mode)
    assert_refused(rollout(home, "status"), f"the folder {home} may be written by others (mode {mode:04o})")


@as_root
def test_a_folder_of_another_user_is_refused(home: Path) -> None:
    settings(home)
    os.chown(home, NOBODY, 0)
    assert_refused(rollout(home, "status"), f"the folder {home} belongs to nobody")


def test_a_link_is_judged_by_where_it_leads(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "settings.toml").write_text("canary = 2\n")
    (home / "rollout.toml").symlink_to("../shared/settings.toml")
    assert "settings: " in rollout(home, "status").stderr
    shared.chmod(0o777)
    assert_refused(rollout(home, "status"), f"the folder {shared}")


def test_a_pipe_in_its_place_is_not_waited_for(home: Path) -> None:
    os.mkfifo(home / "rollout.toml")
    assert "there is no kubeconfig" in rollout(home, "status").stderr


def test_ones_own_file_tunes_and_is_told_beside_the_data(home: Path, start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=4)
    settings(home, 'node = "worker-1"\n')
    ended = rollout(home, "status", "-o", "json", **lab.environment)
    assert [row["node"] for row in json.loads(ended.stdout)] == ["worker-1"]
    assert f"settings: {home / 'rollout.toml'}\n" in ended.stderr


def test_a_found_file_may_set_nothing_that_runs_trusts_writes_or_consents(home: Path) -> None:
    lines = [f'{key} = "x"' for key in RESERVED if key not in {"yes", "out", "journal"}]
    settings(home, "\n".join(lines) + '\n[apply]\nyes = true\njournal = "x"\n[plan]\nout = "x"\n')
    ended = rollout(home, "history")
    assert ended.code == ExitCode.USAGE
    assert all(f" {key} (" in ended.stderr for key in RESERVED), ended.stderr
    assert "hint: Where the file is yours, name it: --config rollout.toml" in ended.stderr


@pytest.mark.parametrize("table", ["", "[status]\n", "[apply]\n"])
def test_what_runs_programs_counts_from_a_named_file_alone(home: Path, table: str) -> None:
    settings(home, table + 'kubeconfig = "theirs.json"\n')
    assert "may not set kubeconfig" in rollout(home, "status").stderr
    assert not (home / "ran").exists()
    assert rollout(home, "status", "--config", "rollout.toml").code == ExitCode.ERROR
    assert (home / "ran").exists() is (table != "[apply]\n")


def test_a_file_that_the_environment_names_counts_and_is_told(home: Path) -> None:
    settings(home, 'kubeconfig = "theirs.json"\n')
    ended = rollout(home, "status", ROLLOUT_CONFIG="rollout.toml")
    assert (home / "ran").exists()
    assert ended.stderr.startswith(f"settings: {home / 'rollout.toml'}\n")


def test_a_named_file_that_anybody_may_write_is_warned_of(home: Path) -> None:
    settings(home, mode=0o666)
    ended = rollout(home, "status", "--config", "rollout.toml")
    assert "warning: any user may write rollout.toml, which --config names\n" in ended.stderr
    assert "warning" not in rollout(home, "status", "--config", os.devnull).stderr


def test_every_flag_is_classified() -> None:
    taken = {
        name.removeprefix("--")
        for command, option in options(hidden=True)
        if command not in ("demo", "fleetlock zincati") and not command.startswith("lab ")
        for name in option.opts
        if name.startswith("--")
    }
    assert taken - {"config"} == TUNING | set(RESERVED)
    assert not TUNING & set(RESERVED)


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
    asked = workers.ShellSettings(None, None, (), 1.0, 1, Patience())
    ask = partial(workers.in_processes, asked, {}, "true", timeout=5, concurrency=1, workers=1)
    assert list(ask(ask_here=_nobody)) == []
    script = Path(__file__).parents[2] / "inventory" / "nodes.py"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, str(script), "--list"], env=environment, capture_output=True, check=False)
    assert not marker.exists()
