"""Whether a reboot would be asked a password for, out of the list of rules that `sudo -n -l` prints.

`sudo -n -l COMMAND` tells what is permitted, not for what price: it passes without a password where any rule of the
user's has NOPASSWD, be it for another command. Of the rules for one command the last one counts.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

_RULE = re.compile(r"\(([^()]*)\) (.*)")
_BETWEEN = re.compile(r"(?<!\\), ")
_BEFORE_COMMAND = re.compile(r"(?:[A-Z_]+: ?|[A-Z]+=\S+ )*")
_TAG = re.compile(r"\b(NOPASSWD|PASSWD):")
_PATHS = ("/usr/bin/systemctl", "/bin/systemctl")
_FOLDERS = ("/usr/bin/", "/bin/")
_FREE = "NOPASSWD"


def wants_password(text: str) -> bool:
    """Whether the list says so; not where it says nothing of a reboot, or says it in a way not read here."""
    if "!authenticate" in text or "^" in text:
        return False
    free = [free for runas, commands in _rules(text) if _as_root(runas) for free in _for_a_reboot(commands)]
    return bool(free) and not free[-1]


def _rules(text: str) -> Iterator[tuple[str, str]]:
    """Whom one becomes, and the commands; sudo breaks long lines, and begins each rule in the fifth column."""
    for rule in re.split(r"\n {4}(?=\()", text.replace("\r", ""))[1:]:
        rule_match = _RULE.fullmatch(" ".join(rule.split()))
        if rule_match:
            yield rule_match[1], rule_match[2]


def _as_root(runas: str) -> bool:
    users = [user.strip() for user in runas.partition(":")[0].split(",")]
    return "!root" not in users and any(user in ("", "ALL", "root", "#0") for user in users)


def _for_a_reboot(commands: str) -> Iterator[bool]:
    """For each of the commands that a reboot may be: whether it wants no password. A tag holds for those after it."""
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
    return any(fnmatchcase(pattern, path) for pattern in _PATHS) and (not arguments or fnmatchcase("reboot", arguments))
