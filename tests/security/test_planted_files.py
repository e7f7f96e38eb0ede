"""Another user lays a link, or a file, where an operator is going to write: in /tmp, or in a folder shared by all.

The kernel refuses to follow it only where `fs.protected_symlinks` is on, which many containers have not.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rollout.adapters.planted import refuse_planted
from rollout.errors import ExitCode
from tests.conftest import StartLab
from tests.ended import Ended, end_of, start

NOBODY = 65534
SECRET = "precious\n"
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


def planted(place: Path, target: Path) -> Path:
    """A link of another user."""
    place.symlink_to(target)
    os.chown(place, NOBODY, NOBODY, follow_symlinks=False)
    return place


def test_a_link_of_another_is_not_followed_in_a_folder_that_all_may_write(shared: Path, victim: Path) -> None:
    link = planted(shared / "x.plan", victim)
    with pytest.raises(PermissionError, match=f"the link {link}, which lies in a folder that everybody may write"):
        refuse_planted(link)


def test_nor_is_a_folder_s(shared: Path, victim: Path) -> None:
    link = planted(shared / "run", victim.parent)
    with pytest.raises(PermissionError, match="belongs to nobody"):
        refuse_planted(link / "victim")


def test_nor_one_that_a_link_of_one_s_own_leads_to(tmp_path: Path, shared: Path, victim: Path) -> None:
    planted(shared / "x", victim)
    own = tmp_path / "own"
    own.symlink_to("shared/../shared/x")
    with pytest.raises(PermissionError, match="belongs to nobody"):
        refuse_planted(own)


def test_a_file_of_another_is_not_written_in_a_sticky_folder(shared: Path) -> None:
    file = shared / "x.plan"
    file.touch()
    os.chown(file, NOBODY, NOBODY)
    with pytest.raises(PermissionError, match=f"^.Errno 13. {file}, which lies in"):
        refuse_planted(file)
    shared.chmod(0o777)
    refuse_planted(file)


@pytest.mark.parametrize(
    "allow",
    [
        lambda shared, _: shared.chmod(0o755),
        lambda shared, _: os.chown(shared, NOBODY, NOBODY),
        lambda _, link: os.chown(link, 0, 0, follow_symlinks=False),
    ],
    ids=["a folder of one's own", "the link of the folder's owner", "a link of root's"],
)
def test_what_is_followed(allow: Callable[[Path, Path], None], shared: Path, victim: Path) -> None:
    link = planted(shared / "x", victim)
    allow(shared, link)
    refuse_planted(link)


def test_what_is_not_there_and_a_circle_are_left_to_the_kernel(shared: Path) -> None:
    refuse_planted(shared / "not" / "there")
    circle = shared / "circle"
    circle.symlink_to("circle")
    refuse_planted(circle)


@pytest.mark.parametrize(
    ("arguments", "flag", "name"),
    [
        (("plan",), "--out", "x.plan"),
        (("plan",), "--out", "x.html"),
        (("plan",), "--markdown", "x.md"),
        (("status",), "--log-file", "x.log"),
        (("known-hosts",), "--known-hosts", "known_hosts"),
    ],
)
def test_no_command_writes_through_it(
    arguments: tuple[str, ...], flag: str, name: str, shared: Path, victim: Path, start_lab: StartLab
) -> None:
    link = planted(shared / name, victim)
    ended = rollout(victim.parent, start_lab, *arguments, flag, str(link))
    assert (ended.code, victim.read_text()) == (ExitCode.ERROR, SECRET), ended
    assert f"the link {link}, which lies in a folder that everybody may write, belongs to nobody" in ended.stderr
    assert victim.stat().st_mode & 0o777 == 0o644


def test_a_report_is_not_written_through_it_either(shared: Path, victim: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    journal.write_text(json.dumps({"type": "event"}) + "\n")
    link = planted(shared / "report.html", victim)
    ended = end_of(start(tmp_path, {}, ("report", str(journal), "--out", str(link))))
    assert (ended.code, victim.read_text()) == (ExitCode.ERROR, SECRET), ended
    assert "belongs to nobody" in ended.stderr


def test_a_rollout_keeps_no_journal_there_and_says_so(shared: Path, victim: Path, start_lab: StartLab) -> None:
    link = planted(shared / "run.jsonl", victim)
    ended = rollout(victim.parent, start_lab, "apply", "--yes", "--node", "worker-1", "--journal", str(link))
    assert (ended.code, victim.read_text()) == (ExitCode.OK, SECRET), ended
    assert f"warning: no journal is written to {link}" in ended.stderr


def rollout(home: Path, start_lab: StartLab, *arguments: str) -> Ended:
    lab = start_lab("default", nodes=4, speed=100)
    return end_of(start(home, lab.environment, arguments))
