"""Another user lays a link, or a file, where an operator is going to write: in /tmp, or in a folder shared by all.

The kernel refuses to follow it only where `fs.protected_symlinks` is on, which many containers have not.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rollout.adapters.journal import JournalFile
from rollout.adapters.local_files import open_output, output_place
from rollout.cli.files import write_whole
from rollout.errors import ExitCode, InputError
from tests.conftest import StartLab
from tests.ended import Ended, invoked

NOBODY = 65534
SECRET = "precious\n"
TRIES = 2000
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of others")


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
        place.state()


def planted(place: Path, target: Path) -> Path:
    """A link of another user."""
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
    return place


def test_a_link_of_another_is_not_followed_in_a_folder_that_all_may_write(shared: Path, victim: Path) -> None:
    link = planted(shared / "x.plan", victim)
    with pytest.raises(PermissionError, match=f"the link {link}, which lies in a folder that everybody may write"):
        judge(link)


def test_nor_is_a_folder_s(shared: Path, victim: Path) -> None:
    link = planted(shared / "run", victim.parent)
    with pytest.raises(PermissionError, match="belongs to nobody"):
        judge(link / "victim")


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_file_of_another_is_not_written_there(mode: int, shared: Path) -> None:
    shared.chmod(mode)
    file = shared / "x.plan"
    file.touch()
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"^.Errno 13. {file}, which lies in .* belongs to nobody"):
        judge(file)


def test_nor_is_a_folder_of_another_entered(shared: Path) -> None:
    folder = shared / "run"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"^.Errno 13. {folder}, which lies in .* belongs to nobody"):
        judge(folder / "x.plan")


def test_a_link_of_one_s_own_is_followed_only_where_nobody_else_can_replace_it(shared: Path, victim: Path) -> None:
    (shared / "x").symlink_to(victim)
    judge(shared / "x")
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match="may be replaced by anybody"):
        judge(shared / "x")


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


@pytest.mark.sample
@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("write", [append, lambda file: write_whole(file, b"spoilt")], ids=["appended", "whole"])
@pytest.mark.parametrize("lay", [lay_link, lay_hard_link])
def test_nobody_wins_a_race_against_the_writer(
    lay: Callable[[Path, Path], None], write: Callable[[Path], None], mode: int, shared: Path, victim: Path
) -> None:
    shared.parent.chmod(0o755)
    shared.chmod(mode)
    # whoever may write a file may give it another name, whatever the kernel protects
    os.chown(victim, 0, NOBODY)
    victim.chmod(0o664)
    refused = written = 0
    with racing(shared, lambda: lay(Path("x"), Path("../victim"))):
        for _ in range(TRIES):
            try:
                write(shared / "x")
                written += 1
            except (OSError, InputError):
                refused += 1
            if written and victim.read_text() != SECRET:
                break
            with suppress(FileNotFoundError):
                (shared / "x").unlink()
    state = victim.stat()
    assert (victim.read_text(), state.st_mode & 0o777, state.st_uid) == (SECRET, 0o664, 0)
    assert refused, "the race did not take place"


@contextmanager
def racing(folder: Path, act: Callable[[], None]) -> Iterator[None]:
    """Another user's process does this again and again, from within a folder whose parents it may not search."""
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


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("plan", "--out", "{}"), "x.plan"),
        (("plan", "--out", "{}"), "x.html"),
        (("plan", "--markdown", "{}"), "x.md"),
        (("status", "--set", "output.log-file={}"), "x.log"),
        (("known-hosts", "--known-hosts", "{}"), "known_hosts"),
    ],
)
def test_no_command_writes_through_it(
    arguments: tuple[str, ...], name: str, shared: Path, victim: Path, start_lab: StartLab
) -> None:
    link = planted(shared / name, victim)
    ended = rollout(victim.parent, start_lab, *(word.format(link) for word in arguments))
    assert (ended.code, victim.read_text()) == (ExitCode.ERROR, SECRET), ended
    assert f"the link {link}, which lies in a folder that everybody may write, belongs to nobody" in ended.stderr
    assert victim.stat().st_mode & 0o777 == 0o644


def test_a_rollout_keeps_no_journal_there_and_says_so(shared: Path, victim: Path, start_lab: StartLab) -> None:
    link = planted(shared / "run.jsonl", victim)
    ended = rollout(victim.parent, start_lab, "apply", "--yes", "--node", "worker-1", "--set", f"output.journal={link}")
    assert (ended.code, victim.read_text()) == (ExitCode.OK, SECRET), ended
    assert f"warning: no journal is written to {link}" in ended.stderr


def rollout(home: Path, start_lab: StartLab, *arguments: str) -> Ended:
    lab = start_lab("default", nodes=4, speed=100)
    return invoked(home, lab.environment, arguments)
