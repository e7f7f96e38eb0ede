"""What logged-in users are told: one line, which no terminal of theirs obeys."""

import pytest

from rollout.errors import ExitCode
from tests.cli.conftest import Command


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "one\ntwo", "a\rb", "\x07", "a\u202eb", "a\u0085b"])
def test_what_is_no_line_of_text_is_refused(text: str, command: Command) -> None:
    ended = command("plan", "--set", f"reboot.wall-message={text}")
    assert (ended.code, ended.stdout) == (ExitCode.USAGE, "")
    assert "one line of printable text" in ended.stderr
    assert "\x1b" not in ended.stderr
