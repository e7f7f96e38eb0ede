"""Another user lays a link, or a file, where an operator is going to write: in /tmp, or in a folder shared by all.

Against who is quicker than a look there are the kernel's own rules, `fs.protected_symlinks` and the like.
"""

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path

import pytest

from rollout.adapters.local_files import check_output, distrust, open_output
from rollout.adapters.ssh import workers
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import ExitCode
from rollout.gather.hosts.polling import Answer
from rollout.model.host import Host
from tests.conftest import StartLab
from tests.ended import invoked

NOBODY = 65534


SECRET = "precious\n"


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder as /tmp is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    file = tmp_path / "victim"
    file.write_text(SECRET)
    file.chmod(0o644)
    return file


def planted(place: Path, target: Path) -> Path:
    """A link of another user."""
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
    return place


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")


def theirs(path: Path) -> Path:
    os.chown(path, NOBODY, NOBODY)
    return path


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_what_is_of_another_is_not_followed_entered_or_written_in_a_folder_that_all_may_write(
    mode: int, shared: Path, victim: Path
) -> None:
    shared.chmod(mode)
    link, folders = planted(shared / "x.plan", victim), planted(shared / "run", victim.parent)
    file, folder = shared / "y.plan", shared / "entered"
    file.touch()
    folder.mkdir()
    for place, said in (
        (link, f"the link {link}, which lies in a folder that everybody may write, belongs to nobody"),
        (folders / "victim", "belongs to nobody"),
        (theirs(file), f"^.Errno 13. {file}, which lies in .* belongs to nobody"),
        (theirs(folder) / "x.plan", f"^.Errno 13. {folder}, which lies in .* belongs to nobody"),
    ):
        for write in (lambda place: os.close(open_output(place, os.O_WRONLY | os.O_APPEND)), check_output):
            with pytest.raises(PermissionError, match=said):
                write(place)
    assert victim.read_text() == SECRET


@as_root
def test_a_link_of_one_s_own_is_followed_to_where_another_s_lies(shared: Path, victim: Path, tmp_path: Path) -> None:
    (shared / "x").symlink_to(victim)
    check_output(shared / "x")
    planted(shared / "y", victim)
    own = tmp_path / "own"
    own.symlink_to("shared/../shared/y")
    with pytest.raises(PermissionError, match="belongs to nobody"):
        check_output(own)


@as_root
def test_no_command_writes_through_it(shared: Path, victim: Path, start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=4, speed=100)
    for number, arguments in enumerate(
        (
            ("plan", "--out", "{}"),
            ("report", "--out", "{}.html"),
            ("plan", "--markdown", "{}"),
            ("status", "--set", "output.log-file={}"),
            ("known-hosts", "--known-hosts", "{}"),
        )
    ):
        words = [word.format(shared / f"x-{number}") for word in arguments]
        link = planted(Path(words[-1].rpartition("=")[2]), victim)
        ended = invoked(victim.parent, lab.environment, words)
        assert (ended.code, victim.read_text()) == (ExitCode.ERROR, SECRET), ended
        assert f"the link {link}, which lies in a folder that everybody may write, belongs to nobody" in ended.stderr
    assert victim.stat().st_mode & 0o777 == 0o644


@as_root
def test_a_rollout_keeps_no_journal_there_and_says_so(shared: Path, victim: Path, start_lab: StartLab) -> None:
    link = planted(shared / "run.jsonl", victim)
    lab = start_lab("default", nodes=4, speed=100)
    flags = ("--node", "worker-1", "--set", f"output.journal={link}")
    ended = invoked(victim.parent, lab.environment, ("apply", "--yes", *flags))
    assert (ended.code, victim.read_text()) == (ExitCode.OK, SECRET), ended
    assert f"warning: no journal is written to {link}" in ended.stderr


# Somebody leaves a file where an operator will stand: `ansible.cfg` in /tmp, in a shared folder, in a checkout or an
# archive. Obeyed, it runs programs. The rule: it counts only where it is the operator's own; settings of rollout
# itself count only from a file that is named; and no module of Python is taken from the current folder.


ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


needs_ansible = pytest.mark.skipif(not ANSIBLE.exists(), reason="ansible-core is not installed")


def settings(home: Path, text: str = "canary = 2\n", mode: int = 0o644) -> Path:
    path = home / "rollout.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_what_everybody_may_write_is_distrusted(tmp_path: Path) -> None:
    path = settings(tmp_path, mode=0o664)
    assert distrust(path, path.stat().st_uid) == ""
    path.chmod(0o666)
    assert "may be written by others (mode 0666)" in distrust(path, path.stat().st_uid)


def test_what_belongs_to_neither_us_nor_root_is_distrusted(tmp_path: Path) -> None:
    path = settings(tmp_path)
    stranger = path.stat().st_uid + 1
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
def test_ansible_cfg_of_others_runs_nothing(tmp_path: Path, start_lab: StartLab) -> None:
    home = tmp_path / "home"
    home.mkdir()
    lab = start_lab("default", nodes=4)
    marker = home / "ran"
    (home / "plugins").mkdir()
    (home / "plugins" / "theirs.py").write_text(PLUGIN.format(marker=str(marker)))
    cfg = "[defaults]\ninventory_plugins = ./plugins\n[inventory]\nenable_plugins = theirs, yaml\n"
    (home / "ansible.cfg").write_text(cfg)
    home.chmod(0o777)
    flags = ("status", "--executor", "ansible", "-i", str(lab.directory / "inventory.yaml"))
    variables = {**lab.environment, "ANSIBLE_LOCAL_TEMP": str(home / "tmp")}
    ended = invoked(home, variables, flags)
    assert ended.code == ExitCode.USAGE
    assert "ansible.cfg of the current folder is refused: the folder" in ended.stderr
    assert not marker.exists()
    invoked(home, {**variables, "ANSIBLE_CONFIG": "ansible.cfg"}, flags)
    assert marker.exists()


def _nobody(_hosts: Mapping[str, Host]) -> Generator[tuple[str, Answer]]:
    yield from ()


def test_no_module_is_taken_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of large fleets and the dynamic inventory start where the operator stands."""
    marker = tmp_path / "ran"
    (tmp_path / "msgspec.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    asked = partial(ParamikoShell, connect_timeout=1.0)
    ask = partial(workers.in_processes, asked, {}, "true", timeout=5, concurrency=1, workers=1)
    assert list(ask(ask_here=_nobody)) == []
    script = Path(__file__).parents[2] / "inventory" / "nodes.py"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run([sys.executable, str(script), "--list"], env=environment, capture_output=True, check=False)
    assert not marker.exists()
