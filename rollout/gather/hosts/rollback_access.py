import re
from collections.abc import Mapping

from rollout.gather.hosts.answer import Sections
from rollout.gather.hosts.sudo import (
    SudoProblem,
    command_refusal,
    sudo_fix,
    sudo_problem,
    wants_password,
)
from rollout.model.host import RollbackAccess

_ANSWER = re.compile(r"([0-9]{1,3}) ((?:bootc|rpm-ostree|cgpt|unshare) .+)")
# Their devices differ between hosts.
_PARTITION_PROGRAMS = ("cgpt", "unshare")


def rollback_access(user: str, stdout: Sections, stderr: Sections) -> RollbackAccess | None:
    """Return None if not asked, or if it cannot be rolled back."""
    rules = stdout.get("sudo-rules", "")
    statuses = _sudo_statuses(stdout.get("may-roll-back", ""))
    refused = [
        command for command, status in statuses.items() if status or wants_password(rules, command)
    ]
    rollbacks = [command for command in statuses if command.endswith(" rollback")]
    may_use_one = any(command not in refused for command in rollbacks)
    if may_use_one:
        # Only one of them has made the system.
        refused = [command for command in refused if command not in rollbacks]
    if not refused:
        return RollbackAccess() if statuses else None
    command = refused[0]
    complaint = stderr.get("may-roll-back", "") if statuses[command] else ""
    # Without a complaint, sudo wants a password.
    problem = sudo_problem(complaint, statuses[command]) or SudoProblem.PASSWORD
    # Without the device: `cgpt show`.
    command_name = " ".join(command.split()[:2])
    sudoers_commands = ", ".join(f"/usr/bin/{needed}" for needed in statuses)
    if command_name.startswith(_PARTITION_PROGRAMS):
        sudoers_commands = "ALL"
    return RollbackAccess(
        refusal=command_refusal(user, command_name, problem, complaint),
        fix=sudo_fix(problem, user, sudoers_commands),
    )


def _sudo_statuses(section: str) -> Mapping[str, int]:
    """Parse `0 bootc rollback`: sudo's exit status by command."""
    statuses: dict[str, int] = {}
    for line in section.splitlines():
        answer = _ANSWER.fullmatch(line.strip())
        if answer:
            status, command = answer.groups()
            statuses[command] = int(status)
    return statuses
