"""Another user lays a link, or a file, where an operator is going to write: in /tmp, or in a folder shared by all.

The kernel refuses to follow it only where `fs.protected_symlinks` is on, which many containers have
not.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from rollout.adapters.input_trust import why_maybe_planted
from rollout.adapters.journal import JournalFile
from rollout.adapters.local_files import open_output, output_place, write_whole
from rollout.adapters.ssh import workers
from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import ExitCode, InputError
from tests.conftest import StartLab
from tests.ended import invoked

NOBODY = 65534


SECRET = "precious\n"


TRIES = 2000


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


def judge(path: Path) -> None:
    with output_place(path) as place:
        place.checked_state()


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
    link = planted(shared / "x.plan", victim)
    folders = planted(shared / "run", victim.parent)
    file = shared / "y.plan"
    folder = shared / "entered"
    file.touch()
    folder.mkdir()
    for place, said in (
        (
            link,
            f"the link {link}, in a world-writable directory, belongs to nobody",
        ),
        (folders / "victim", "belongs to nobody"),
        (theirs(file), f"^.Errno 13. {file}, in .* belongs to nobody"),
        (theirs(folder) / "x.plan", f"^.Errno 13. {folder}, in .* belongs to nobody"),
    ):
        with pytest.raises(PermissionError, match=said):
            judge(place)


@as_root
def test_a_link_of_one_s_own_is_followed_only_where_nobody_else_can_replace_it(
    shared: Path, victim: Path, tmp_path: Path
) -> None:
    (shared / "x").symlink_to(victim)
    judge(shared / "x")
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match="can be replaced by anyone"):
        judge(shared / "x")
    # nor where it leads to one of another
    planted(shared / "y", victim)
    own = tmp_path / "own"
    own.symlink_to("shared/../shared/y")
    with pytest.raises(PermissionError, match="belongs to nobody"):
        judge(own)


def append(file: Path) -> None:
    """As a log and known_hosts are."""
    os.close(open_output(file, os.O_WRONLY | os.O_APPEND))
    JournalFile(file).close()
    descriptor = open_output(file, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b"spoilt")
    os.fchmod(descriptor, 0o600)
    os.close(descriptor)


def lay_link(place: Path, victim: Path) -> None:
    place.touch()
    place.unlink()
    place.symlink_to(victim)
    place.unlink()


def lay_hard_link(place: Path, victim: Path) -> None:
    os.link(victim, place)
    place.unlink()


@as_root
@pytest.mark.sample
@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize(
    "write", [append, lambda file: write_whole(file, b"spoilt")], ids=["appended", "whole"]
)
@pytest.mark.parametrize("lay", [lay_link, lay_hard_link])
def test_nobody_wins_a_race_against_the_writer(
    lay: Callable[[Path, Path], None],
    write: Callable[[Path], None],
    mode: int,
    shared: Path,
    victim: Path,
) -> None:
    shared.parent.chmod(0o755)
    shared.chmod(mode)
    # whoever may write a file may give it another name, whatever the kernel protects
    os.chown(victim, 0, NOBODY)
    victim.chmod(0o664)

    def write_anew() -> None:
        with suppress(FileNotFoundError):
            (shared / "x").unlink()
        write(shared / "x")

    with racing(shared, lambda: lay(Path("x"), Path("../victim"))):
        _, refused = tried(write_anew, lambda: victim.read_text() != SECRET)
    state = victim.stat()
    assert victim.read_text() == SECRET
    assert state.st_mode & 0o777 == 0o664
    assert state.st_uid == 0
    assert refused, "the race did not take place"


@as_root
def test_nobody_swaps_a_folder_under_the_writer(shared: Path, tmp_path: Path) -> None:
    """In a folder without the sticky bit, anybody may rename what is ours and lay a link in its
    place.
    """
    shared.parent.chmod(0o755)
    shared.chmod(0o777)
    run = shared / "run"
    elsewhere = tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()

    def swap() -> None:
        # the writer may have made it anew
        aside = Path(f"aside-{time.monotonic_ns()}")
        Path("run").rename(aside)
        with suppress(OSError):
            Path("run").symlink_to("../elsewhere")
            Path("run").unlink()
        aside.rename("run")

    with racing(shared, swap):
        written, refused = tried(lambda: append(run / "x"), lambda: any(elsewhere.iterdir()))
    assert list(elsewhere.iterdir()) == []
    assert written, "nothing was ever written"
    assert refused, "the race did not take place"


def tried(write: Callable[[], None], is_lost: Callable[[], bool]) -> tuple[int, int]:
    """How often it was written and how often refused, until the race is lost or has been run often
    enough.
    """
    written = refused = 0
    for _ in range(TRIES):
        try:
            write()
            written += 1
        except (OSError, InputError):
            refused += 1
        if is_lost():
            break
    return written, refused


@contextmanager
def racing(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Another user's process does this again and again, from within a folder whose parents it may
    not search.
    """
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        while os.getppid() != 1:
            with suppress(OSError):
                act()
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@as_root
def test_no_command_writes_through_it(shared: Path, victim: Path, start_lab: StartLab) -> None:
    lab = start_lab("default", nodes=4, speed=100)
    for number, arguments in enumerate(
        (
            ("plan", "--out", "{}"),
            ("report", "--out", "{}.html"),
            ("plan", "--markdown", "{}"),
            ("known-hosts", "--known-hosts", "{}"),
        )
    ):
        words = [word.format(shared / f"x-{number}") for word in arguments]
        link = planted(Path(words[-1].rpartition("=")[2]), victim)
        ended = invoked(victim.parent, lab.environment, words)
        assert (ended.code, victim.read_text()) == (ExitCode.ERROR, SECRET), ended
        assert f"the link {link}, in a world-writable directory, belongs to nobody" in ended.stderr
    assert victim.stat().st_mode & 0o777 == 0o644


@as_root
def test_a_rollout_keeps_no_journal_there_and_says_so(
    shared: Path, victim: Path, start_lab: StartLab
) -> None:
    link = planted(shared / "run.jsonl", victim)
    lab = start_lab("default", nodes=4, speed=100)
    flags = ("--node", "worker-1", "--set", f"output.journal={link}")
    ended = invoked(victim.parent, lab.environment, ("apply", "--yes", *flags))
    assert (ended.code, victim.read_text()) == (ExitCode.OK, SECRET), ended
    assert f"warning: cannot write the journal {link}" in ended.stderr


# Somebody leaves a file where an operator will stand: `ansible.cfg` in /tmp, in a shared folder, in
# a checkout or an archive. Obeyed, it runs programs. The rule: it counts only where it is the
# operator's own; settings of rollout itself count only from a file that is named; and no module of
# Python is taken from the current folder.


ANSIBLE = Path(sys.executable).with_name("ansible-playbook")


needs_ansible = pytest.mark.skipif(not ANSIBLE.exists(), reason="ansible-core is not installed")


def settings(home: Path, text: str = "canary = 2\n", mode: int = 0o644) -> Path:
    path = home / "rollout.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_users_own_group_is_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with umask 002 where each user has a group of their own."""
    path = settings(tmp_path, mode=0o664)
    for is_own, said in ((True, ""), (False, f"others can write to {path} (mode 0664)")):
        monkeypatch.setattr(
            "rollout.adapters.input_trust._is_own_group", lambda _gid, is_own=is_own: is_own
        )
        assert why_maybe_planted(path) == said
    path.chmod(0o644)
    assert why_maybe_planted(path) == ""
    (tmp_path / "link").symlink_to(path)
    assert "is a link" in why_maybe_planted(tmp_path / "link")


def test_what_belongs_to_neither_us_nor_root_is_distrusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(tmp_path)
    owner = path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert bool(why_maybe_planted(path)) is not (owner == 0)


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
    ended = invoked(home, variables, flags).ends(ExitCode.USAGE)
    assert (
        "ansible.cfg in the current directory is refused: others can write to the directory"
        in ended.stderr
    )
    assert not marker.exists()
    named = {**variables, "ANSIBLE_CONFIG": "ansible.cfg"}
    assert "others can write to the directory" in invoked(home, named, flags).stderr
    home.chmod(0o755)
    os.chown(home / "ansible.cfg", NOBODY, NOBODY)
    ended = invoked(home, variables, flags).ends(ExitCode.USAGE)
    assert "To use it: ANSIBLE_CONFIG=ansible.cfg" in ended.stderr
    assert not marker.exists()
    invoked(home, named, flags)
    assert marker.exists()


def test_no_module_is_taken_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers of large fleets and the dynamic inventory start where the operator stands."""
    marker = tmp_path / "ran"
    (tmp_path / "msgspec.py").write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    ask = partial(ParamikoShell().run, command="true", timeout=5)
    assert list(workers.in_processes(ask, {}, concurrency=1, workers=1)) == []
    script = Path(__file__).parents[2] / "inventory" / "nodes.py"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(
        [sys.executable, str(script), "--list"], env=environment, capture_output=True, check=False
    )
    assert not marker.exists()
