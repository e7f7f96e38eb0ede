"""The names of commands in the debug log."""

import logging
from typing import Any, cast

import pytest

from rollout.adapters.ssh.logged_shell import LoggedShell
from rollout.errors import DrainError
from rollout.gather.hosts.probe import BOOT_COMMAND
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND, rollback_command
from rollout.model.host import Host
from rollout.ports import CommandResult


class Succeeding:
    attending = None

    def run_if(self, *_arguments: object, **_options: object) -> CommandResult:
        return CommandResult(0, "", "")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (REBOOT_COMMAND, "reboot"),
        (rollback_command(REBOOT_COMMAND), "rollback and reboot"),
        (rollback_command("/opt/reboot"), "rollback and reboot"),
        (BOOT_RUNNING_COMMAND, "undo the rollback"),
        ("/opt/reboot", "the operator's reboot command"),
    ],
)
def test_only_the_operators_command_is_logged_as_theirs(
    command: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "rollout.ssh")
    shell = LoggedShell(cast("Any", Succeeding()))
    host = Host("worker-1", "192.0.2.1")
    shell.run_if(host, BOOT_COMMAND, lambda _answer: True, command, timeout=1)
    assert f": boot ID, then {name}: status 0" in caplog.text


def test_a_check_that_raises_after_the_question_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "rollout.ssh")

    class Asking:
        attending = None

        def run_if(self, *_arguments: object, **_options: object) -> CommandResult:
            raise DrainError("a pod is back")

    shell = LoggedShell(cast("Any", Asking()))
    host = Host("worker-1", "192.0.2.1")
    with pytest.raises(DrainError):
        shell.run_if(host, BOOT_COMMAND, lambda _answer: True, REBOOT_COMMAND, timeout=1)
    assert ": boot ID, then reboot: stopped by DrainError, " in caplog.text
