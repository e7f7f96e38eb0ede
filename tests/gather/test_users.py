"""Who is logged in, as a real `who` says it; the answers of others are fixtures of the probe."""

import pty
import shutil
import subprocess

import pytest

from rollout.gather.hosts.users import WALL_MESSAGE, WHO_COMMAND, parse_users, wall_command
from rollout.ports import CommandResult


def answered(stdout: str) -> CommandResult:
    return CommandResult(0, stdout, "")


@pytest.mark.skipif(shutil.which("who") is None, reason="no who here")
@pytest.mark.parametrize("terminal", [True, False])
def test_a_real_who_gives_an_answer_that_is_understood(*, terminal: bool) -> None:
    master, slave = pty.openpty() if terminal else (None, subprocess.DEVNULL)
    done = subprocess.run(["sh", "-c", WHO_COMMAND], stdin=slave, capture_output=True, text=True, check=True)
    assert parse_users(answered(done.stdout)) is not None
    assert ("TTY=/dev/pts/" in done.stdout) == terminal, master


def test_what_a_login_shell_says_before_is_no_user() -> None:
    users = parse_users(answered("core pts/9 now\n@@exit 0\n@@rollout-probe users\nTTY=\ncore pts/1 now\n@@exit 0\n"))
    assert users is not None
    assert [str(user) for user in users] == ["core (pts/1)"]


def test_the_message_is_never_a_command(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What reaches `wall` is what was written, and nothing of it is run."""
    folder = tmp_path_factory.mktemp("bin")
    for name, body in (("id", "echo 500"), ("sudo", "exit 1"), ("wall", "cat")):
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "cat").symlink_to(str(shutil.which("cat")))
    for message in (WALL_MESSAGE, "'; touch /tmp/x; '", "$(id) `id` \\n %s -x"):
        words = [str(shutil.which("sh")), "-c", wall_command(message)]
        done = subprocess.run(words, env={"PATH": str(folder)}, capture_output=True, text=True, check=True)
        assert done.stdout == f"{message}\n"
