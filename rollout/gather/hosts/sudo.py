"""Why `sudo -n` did not run a command: what it says, as one of the few things that an operator can mend.

With `-n` sudo asks for a password before it looks a user up: a user that it does not know at all and one that must
type a password are told apart by it only where no password would be asked for.
"""

import re

from rollout.gather.hosts.answer import CUT_OFF, complaint

_RULE = "Allow it in /etc/sudoers.d/rollout: {user} ALL=(root) NOPASSWD: /usr/bin/systemctl reboot"
_NO_ANSWER = "sudo did not answer in time"
_NOT_ALLOWED = "the sudoers rules do not allow the user this command"
_OTHER = "sudo does not run it"
# What sudo, or what starts it, says, and what that means.
_SIGNS = (
    (r"not in the sudoers file|may not run sudo", "the user is not in the sudoers file"),
    (r"must have a tty|no tty present|requiretty", "sudo wants a terminal (requiretty)"),
    (
        r"password is required|a terminal is required to read the password",
        "sudo asks for a password, or does not know the user at all",
    ),
    (r"is not allowed to", _NOT_ALLOWED),
    (r"failed to run command.*sudo|sudo: (?:command )?not found|sudo: No such file", "sudo is not installed"),
)
# By a part of the sentence; where there is none, it takes a rule.
_FIXES = {
    "(requiretty)": "Allow it without a terminal in /etc/sudoers.d/rollout: Defaults:{user} !requiretty",
    "sudo is not installed": "Install sudo there, connect as root, or reboot by a reboot.command of your own.",
    _NO_ANSWER: "See on the host why sudo hangs: a directory server or a name server that does not answer?",
    _OTHER: "See on the host what is wrong with sudo.",
}


def sudo_fix(message: str, user: str) -> str:
    """Return what mends the refusal that this text tells of."""
    return next((fix for part, fix in _FIXES.items() if part in message), _RULE).format(user=user)


def refusal(stderr: str, exit_status: int | None = None) -> str:
    """Return half a sentence on what the complaint and the exit status of `sudo -n` mean; empty where neither is."""
    said = complaint(stderr)
    meaning = next((sentence for pattern, sentence in _SIGNS if re.search(pattern, stderr)), _OTHER if said else "")
    if exit_status == CUT_OFF:
        meaning = _NO_ANSWER
    elif exit_status and not meaning:
        # `sudo -l COMMAND` says nothing where the command alone is not allowed
        meaning = _NOT_ALLOWED
    return f"{meaning} ({said})" if said else meaning
