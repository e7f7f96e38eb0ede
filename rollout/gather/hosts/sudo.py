"""Why `sudo -n` did not run a command.

It asks for a password first, so an unknown user may look like one that needs a password.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from fnmatch import fnmatchcase

from rollout.gather.hosts.answer import CUT_OFF
from rollout.model.text import joined
from rollout.model.tool_output import last_line

_LISTED_RULE = re.compile(r"\(([^()]*)\) (.*)")
_BETWEEN = re.compile(r"(?<!\\), ")
_BEFORE_COMMAND = re.compile(r"(?:[A-Z_]+: ?|[A-Z]+=\S+ )*")
_TAG = re.compile(r"\b(NOPASSWD|PASSWD):")
_FOLDERS = ("/usr/bin/", "/bin/")
_NOPASSWD = "NOPASSWD"


class SudoProblem(StrEnum):
    """Half a sentence each."""

    NOT_IN_SUDOERS = "the user is not in the sudoers file"
    NO_TERMINAL = "sudo wants a terminal (requiretty)"
    PASSWORD = "sudo asks for a password, or does not know the user at all"  # noqa: S105
    NOT_ALLOWED = "the sudoers rules do not allow the user this command"
    NOT_INSTALLED = "sudo is not installed"
    NO_ANSWER = "sudo did not respond in time"
    OTHER = "sudo does not run it"


# Patterns of messages of sudo or the shell.
_SIGNS = (
    (r"not in the sudoers file|may not run sudo", SudoProblem.NOT_IN_SUDOERS),
    (r"must have a tty|no tty present|requiretty", SudoProblem.NO_TERMINAL),
    (
        r"password is required|a terminal is required to read the password",
        SudoProblem.PASSWORD,
    ),
    (r"is not allowed to", SudoProblem.NOT_ALLOWED),
    (
        r"failed to run command.*sudo|sudo: (?:command )?not found|sudo: No such file",
        SudoProblem.NOT_INSTALLED,
    ),
)
_RULE = "Allow it in /etc/sudoers.d/rollout: {user} ALL=(root) NOPASSWD: {commands}"
# Other problems need a sudoers rule.
_FIXES = {
    SudoProblem.NO_TERMINAL: (
        "Allow it without a terminal in /etc/sudoers.d/rollout: Defaults:{user} !requiretty"
    ),
    SudoProblem.NOT_INSTALLED: (
        "Install sudo there, connect as root, or reboot by a reboot.command of your own."
    ),
    SudoProblem.NO_ANSWER: (
        "See on the host why sudo hangs: a directory server or a name server that does not respond?"
    ),
    SudoProblem.OTHER: "See on the host what is wrong with sudo.",
}


def sudo_fix(problem: SudoProblem | None, user: str, commands: str) -> str:
    """`commands` are those of a rule for the user, as sudoers has them."""
    fix = _FIXES.get(problem, _RULE) if problem else _RULE
    return fix.format(user=user, commands=commands)


def sudo_problem(stderr: str, exit_status: int | None = None) -> SudoProblem | None:
    if exit_status == CUT_OFF:
        return SudoProblem.NO_ANSWER
    for pattern, problem in _SIGNS:
        if re.search(pattern, stderr):
            return problem
    if last_line(stderr):
        return SudoProblem.OTHER
    # `sudo -l COMMAND` prints nothing when only this command is not allowed.
    return SudoProblem.NOT_ALLOWED if exit_status else None


def refusal(problem: SudoProblem | None, stderr: str) -> str:
    complaint = last_line(stderr)
    if problem and complaint:
        return f"{problem} ({complaint})"
    return problem or ""


def command_refusal(user: str, command: str, problem: SudoProblem | None, stderr: str) -> str:
    """Return why the user may not run a command with `sudo -n`; `stderr` is empty for a rule."""
    cause = refusal(problem, stderr)
    if problem is SudoProblem.PASSWORD and not stderr:
        cause = f"{problem} (of its rules for it the last has no NOPASSWD)"
    return joined(": ", f"{user} may not run `sudo -n {command}`", cause)


def wants_password(text: str, command: str) -> bool:
    """Whether the command needs a password, by the rules that `sudo -n -l` prints.

    `sudo -n -l COMMAND` does not tell: it succeeds if any rule has NOPASSWD. The last rule for a
    command counts.
    """
    # Rules with these options or with regular expressions are not judged.
    if "!authenticate" in text or "^" in text:
        return False
    needs_password = False
    for runas, commands in _rules(text):
        if _includes_root(runas):
            for has_nopasswd in _rules_for(command, commands):
                needs_password = not has_nopasswd
    return needs_password


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield each rule's target users and commands.

    sudo wraps long lines, and starts each rule in the fifth column.
    """
    for rule in re.split(r"\n {4}(?=\()", text.replace("\r", ""))[1:]:
        rule_match = _LISTED_RULE.fullmatch(" ".join(rule.split()))
        if rule_match:
            yield rule_match[1], rule_match[2]


def _includes_root(runas: str) -> bool:
    users = [user.strip() for user in runas.partition(":")[0].split(",")]
    return "!root" not in users and any(user in ("", "ALL", "root", "#0") for user in users)


def _rules_for(wanted: str, commands: str) -> Iterator[bool]:
    """Yield, for each command that permits the wanted one, whether it has NOPASSWD.

    A tag also holds for the commands after it.
    """
    has_nopasswd = False
    for command in _BETWEEN.split(commands):
        before = _BEFORE_COMMAND.match(command)
        tag_text = before[0] if before else ""
        tags = _TAG.findall(tag_text)
        has_nopasswd = tags[-1] == _NOPASSWD if tags else has_nopasswd
        if _permits(command[len(tag_text) :], wanted):
            yield has_nopasswd


def _permits(command: str, wanted: str) -> bool:
    path, _, arguments = command.partition(" ")
    if command == "ALL" or (path in _FOLDERS and not arguments):
        return True
    program, _, wanted_arguments = wanted.partition(" ")
    is_program = any(fnmatchcase(f"{folder}{program}", path) for folder in _FOLDERS)
    return is_program and (not arguments or fnmatchcase(wanted_arguments, arguments))
