"""Reads whether the SSH user may run the commands of a rollback."""

import re
from collections.abc import Mapping

from rollout.gather.hosts.sudo import (
    SudoProblem,
    command_refusal,
    sudo_fix,
    sudo_problem,
    wants_password,
)
from rollout.model.host import RollbackAccess

_ANSWER = re.compile(r"([0-9]{1,3}) ((?:bootc|rpm-ostree|cgpt|unshare) .+)")
# Rules cannot name the devices, which differ between hosts.
_OF_PARTITIONS = ("cgpt", "unshare")


def rollback_access(
    user: str, answers: Mapping[str, str], complaints: Mapping[str, str]
) -> RollbackAccess | None:
    """Return None if the host was not asked, or has no system that rollout can roll back."""
    rules = answers.get("sudo-rules", "")
    statuses: dict[str, int] = {}
    for line in answers.get("may-roll-back", "").splitlines():
        answer = _ANSWER.fullmatch(line.strip())
        if answer:
            statuses[answer[2]] = int(answer[1])
    refused = [
        command for command, status in statuses.items() if status or wants_password(rules, command)
    ]
    rollbacks = [command for command in statuses if command.endswith(" rollback")]
    if not set(rollbacks) <= set(refused):
        # Of bootc and rpm-ostree, a host needs the one that made its system.
        refused = [command for command in refused if command not in rollbacks]
    if not refused:
        return RollbackAccess() if statuses else None
    command = refused[0]
    complaint = complaints.get("may-roll-back", "") if statuses[command] else ""
    problem = sudo_problem(complaint, statuses[command]) or SudoProblem.PASSWORD
    name = " ".join(command.split()[:2])
    rule = ", ".join(f"/usr/bin/{needed}" for needed in statuses)
    if name.startswith(_OF_PARTITIONS):
        rule = "ALL"
    return RollbackAccess(
        refusal=command_refusal(user, name, problem, complaint),
        fix=sudo_fix(problem, user, rule),
    )
