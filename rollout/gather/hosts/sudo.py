import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from fnmatch import fnmatchcase

from rollout.gather.hosts.answer import TIMED_OUT
from rollout.model.text import joined
from rollout.model.tool_output import last_line

_LISTED_RULE = re.compile(r"\(([^()]*)\) (.*)")
_COMMAND_SEPARATOR = re.compile(r"(?<!\\), ")
_TAGS_AND_OPTIONS = re.compile(r"(?:[A-Z_]+: ?|[A-Z]+=\S+ )*")
_TAG = re.compile(r"\b(NOPASSWD|PASSWD):")
_FOLDERS = ("/usr/bin/", "/bin/")
_NOPASSWD = "NOPASSWD"
# `fnmatch` takes quadratic time.
_LONGEST_COMMAND = 256


class SudoProblem(StrEnum):
    NOT_IN_SUDOERS = "the user is not in the sudoers file"
    NO_TERMINAL = "sudo wants a terminal (requiretty)"
    PASSWORD = "sudo asks for a password, or has no rule for the user"  # noqa: S105
    NOT_ALLOWED = "the sudoers rules do not allow the user this command"
    NOT_INSTALLED = "sudo is not installed"
    NO_ANSWER = "sudo did not respond in time"
    OTHER = "sudo failed"


_PROBLEM_PATTERNS = (
    (r"not in the sudoers file|may not run sudo", SudoProblem.NOT_IN_SUDOERS),
    (r"must have a tty|no tty present|requiretty", SudoProblem.NO_TERMINAL),
    (
        r"password is required|a terminal is required to read the password",
        SudoProblem.PASSWORD,
    ),
    (r"is not allowed to", SudoProblem.NOT_ALLOWED),
    (
        r"failed to run command .{0,9}sudo|sudo: (?:command )?not found|sudo: No such file",
        SudoProblem.NOT_INSTALLED,
    ),
)
_RULE_FIX = "Allow it in /etc/sudoers.d/rollout: {user} ALL=(root) NOPASSWD: {commands}"
_FIXES: Mapping[SudoProblem | None, str] = {
    SudoProblem.NO_TERMINAL: (
        "Allow it without a terminal in /etc/sudoers.d/rollout: Defaults:{user} !requiretty"
    ),
    SudoProblem.NOT_INSTALLED: (
        "Install sudo there, connect as root, or set reboot.command to a command without sudo."
    ),
    SudoProblem.NO_ANSWER: (
        "Find out on the host why sudo hangs. A directory or name server may not be responding."
    ),
    SudoProblem.OTHER: "Find out on the host what is wrong with sudo.",
}


def sudo_fix(problem: SudoProblem | None, user: str, commands: str) -> str:
    fix = _FIXES.get(problem, _RULE_FIX)
    return fix.format(user=user, commands=commands)


def sudo_problem(stderr: str, exit_status: int | None = None) -> SudoProblem | None:
    """Return why sudo has not run a command, or None."""
    if exit_status == TIMED_OUT:
        return SudoProblem.NO_ANSWER
    for pattern, problem in _PROBLEM_PATTERNS:
        if re.search(pattern, stderr):
            return problem
    if last_line(stderr):
        return SudoProblem.OTHER
    # `sudo -l COMMAND` is silent if only this is not allowed.
    return SudoProblem.NOT_ALLOWED if exit_status else None


def describe_problem(problem: SudoProblem | None, stderr: str) -> str:
    complaint = last_line(stderr)
    if problem and complaint:
        return f"{problem} ({complaint})"
    return problem or ""


def command_refusal(user: str, command: str, problem: SudoProblem | None, stderr: str) -> str:
    """`stderr` is empty if only sudo's rules say that it wants a password."""
    cause = describe_problem(problem, stderr)
    if problem is SudoProblem.PASSWORD and not stderr:
        cause = f"{problem} (the last sudo rule for this command has no NOPASSWD)"
    return joined(": ", f"{user} cannot run `sudo -n {command}`", cause)


def wants_password(listed_rules: str, command: str) -> bool:
    """Whether the rules of `sudo -n -l` demand a password.

    The last rule for a command counts, but `sudo -n -l COMMAND` succeeds if any rule has NOPASSWD.
    """
    # The rules cannot be judged.
    if "!authenticate" in listed_rules or "^" in listed_rules:
        return False
    needs_password = False
    for runas, commands in _split_rules(listed_rules):
        if _may_be_root(runas):
            for has_nopasswd in _nopasswd_of_matching(command, commands):
                needs_password = not has_nopasswd
    return needs_password


def _split_rules(listed_rules: str) -> Iterator[tuple[str, str]]:
    """Yield users and commands: `root`, `NOPASSWD: /usr/bin/cgpt`.

    sudo wraps long lines, and starts each rule in the fifth column.
    """
    _heading, *rules = re.split(r"\n {4}(?=\()", listed_rules.replace("\r", ""))
    for rule in rules:
        rule_match = _LISTED_RULE.fullmatch(" ".join(rule.split()))
        if rule_match:
            yield rule_match[1], rule_match[2]


def _may_be_root(runas: str) -> bool:
    # Groups follow a colon: `ALL : ALL`.
    users = [user.strip() for user in runas.partition(":")[0].split(",")]
    return "!root" not in users and any(user in ("", "ALL", "root", "#0") for user in users)


def _nopasswd_of_matching(wanted: str, commands: str) -> Iterator[bool]:
    """Yield whether each matching command has NOPASSWD.

    A tag also applies to later commands.
    """
    has_nopasswd = False
    for command in _COMMAND_SEPARATOR.split(commands):
        prefix = _TAGS_AND_OPTIONS.match(command)
        tag_text = prefix[0] if prefix else ""
        tags = _TAG.findall(tag_text)
        if tags:
            has_nopasswd = tags[-1] == _NOPASSWD
        if _covers(command[len(tag_text) :], wanted):
            yield has_nopasswd


def _covers(command: str, wanted: str) -> bool:
    """Whether a rule's command, maybe with wildcards, allows `wanted`."""
    if len(command) > _LONGEST_COMMAND:
        return False
    path, _, arguments = command.partition(" ")
    is_folder = path in _FOLDERS and not arguments
    if command == "ALL" or is_folder:
        return True
    wanted_program, _, wanted_arguments = wanted.partition(" ")
    is_program = any(fnmatchcase(f"{folder}{wanted_program}", path) for folder in _FOLDERS)
    allows_arguments = not arguments or fnmatchcase(wanted_arguments, arguments)
    return is_program and allows_arguments
