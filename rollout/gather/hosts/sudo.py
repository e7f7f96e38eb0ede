"""Why `sudo -n` did not run a command, as one of the few causes that an operator can fix.

With `-n` sudo asks for a password before it looks the user up, so an unknown user and one that
needs a password cannot always be told apart.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from rollout.gather.hosts.answer import CUT_OFF
from rollout.model.tool_output import last_line

_LISTED_RULE = re.compile(r"\(([^()]*)\) (.*)")
_BETWEEN = re.compile(r"(?<!\\), ")
_BEFORE_COMMAND = re.compile(r"(?:[A-Z_]+: ?|[A-Z]+=\S+ )*")
_TAG = re.compile(r"\b(NOPASSWD|PASSWD):")
_PATHS = ("/usr/bin/systemctl", "/bin/systemctl")
_FOLDERS = ("/usr/bin/", "/bin/")
_FREE = "NOPASSWD"


PASSWORD = "sudo asks for a password, or does not know the user at all"  # noqa: S105 - a sentence
_NO_ANSWER = "sudo did not answer in time"
_NOT_ALLOWED = "the sudoers rules do not allow the user this command"
_OTHER = "sudo does not run it"
# Patterns of messages of sudo or the shell, with their meaning.
_SIGNS = (
    (r"not in the sudoers file|may not run sudo", "the user is not in the sudoers file"),
    (r"must have a tty|no tty present|requiretty", "sudo wants a terminal (requiretty)"),
    (r"password is required|a terminal is required to read the password", PASSWORD),
    (r"is not allowed to", _NOT_ALLOWED),
    (
        r"failed to run command.*sudo|sudo: (?:command )?not found|sudo: No such file",
        "sudo is not installed",
    ),
)
_RULE = "Allow it in /etc/sudoers.d/rollout: {user} ALL=(root) NOPASSWD: /usr/bin/systemctl reboot"
# By a part of the message. Other messages need a sudoers rule.
_FIXES = {
    "(requiretty)": (
        "Allow it without a terminal in /etc/sudoers.d/rollout: Defaults:{user} !requiretty"
    ),
    "sudo is not installed": (
        "Install sudo there, connect as root, or reboot by a reboot.command of your own."
    ),
    _NO_ANSWER: (
        "See on the host why sudo hangs: a directory server or a name server that does not answer?"
    ),
    _OTHER: "See on the host what is wrong with sudo.",
}


def sudo_fix(message: str, user: str) -> str:
    """Return how to fix the refusal in this message."""
    return next((fix for part, fix in _FIXES.items() if part in message), _RULE).format(user=user)


def refusal(stderr: str, exit_status: int | None = None) -> str:
    """Return what the stderr and the exit status of `sudo -n` mean; empty if they say nothing."""
    complaint = last_line(stderr)
    meaning = next(
        (sentence for pattern, sentence in _SIGNS if re.search(pattern, stderr)),
        _OTHER if complaint else "",
    )
    if exit_status == CUT_OFF:
        meaning = _NO_ANSWER
    elif exit_status and not meaning:
        # `sudo -l COMMAND` prints nothing when only this command is not allowed.
        meaning = _NOT_ALLOWED
    return f"{meaning} ({complaint})" if complaint else meaning


def wants_password(text: str) -> bool:
    """Return whether a reboot needs a password, by the rules that `sudo -n -l` prints.

    `sudo -n -l COMMAND` does not tell: it succeeds if any rule of the user has NOPASSWD. The last
    rule for a command counts. False if the rules say nothing about a reboot, or cannot be read.
    """
    if "!authenticate" in text or "^" in text:
        return False
    needs_password = False
    for runas, commands in _rules(text):
        if _as_root(runas):
            for is_free in _for_a_reboot(commands):
                needs_password = not is_free
    return needs_password


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Yield the target users and the commands of each rule.

    sudo wraps long lines, and starts each rule in the fifth column.
    """
    for rule in re.split(r"\n {4}(?=\()", text.replace("\r", ""))[1:]:
        rule_match = _LISTED_RULE.fullmatch(" ".join(rule.split()))
        if rule_match:
            yield rule_match[1], rule_match[2]


def _as_root(runas: str) -> bool:
    users = [user.strip() for user in runas.partition(":")[0].split(",")]
    return "!root" not in users and any(user in ("", "ALL", "root", "#0") for user in users)


def _for_a_reboot(commands: str) -> Iterator[bool]:
    """Yield, for each command that permits a reboot, whether it has NOPASSWD.

    A tag also holds for the commands after it.
    """
    free = False
    for command in _BETWEEN.split(commands):
        before = _BEFORE_COMMAND.match(command)
        tag_text = before[0] if before else ""
        tags = _TAG.findall(tag_text)
        free = tags[-1] == _FREE if tags else free
        if _is_reboot(command[len(tag_text) :]):
            yield free


def _is_reboot(command: str) -> bool:
    path, _, arguments = command.partition(" ")
    if command == "ALL" or (path in _FOLDERS and not arguments):
        return True
    return any(fnmatchcase(pattern, path) for pattern in _PATHS) and (
        not arguments or fnmatchcase("reboot", arguments)
    )
