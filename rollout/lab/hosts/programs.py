"""The programs of a simulated host: few, and with the few options that rollout and its playbooks use.

Whoever wants a real host has `tests/e2e`; a scenario's `commands` say what else a host answers.
"""

import operator
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.faults import SudoFault
from rollout.lab.hosts.services import SERVICE_PROGRAMS, halt
from rollout.lab.hosts.session import (
    NOT_FOUND,
    Output,
    Program,
    Session,
    Words,
    files_below,
    may_write,
    read_file,
    write_file,
)

_FOREVER: Final = 86_400.0
_FROM: Final = "(192.0.2.7)"
_USER_IDS: Final = {"root": 0, "core": 500}
_KILLED: Final = 137
_COMPARISONS: Final = {"=": operator.eq, "!=": operator.ne}
_SUDO_SAYS: Final = {
    SudoFault.PASSWORD: "sudo: a password is required",
    SudoFault.UNKNOWN_USER: "{} is not in the sudoers file.",
    SudoFault.NO_TERMINAL: "sudo: sorry, you must have a tty to run sudo",
}


def _constant(status: int) -> Program:
    async def end(_session: Session, _words: Words) -> Output:
        return Output(status)

    return end


async def _sleep(session: Session, words: Words) -> Output:
    await session.sleep(float(words[1]))
    return Output()


async def _timeout(session: Session, words: Words) -> Output:
    return await session.run(words[2:], limit=float(words[1]))


async def _echo(_session: Session, words: Words) -> Output:
    return Output(out=f"{' '.join(words[1:])}\n")


async def _hostname(session: Session, _words: Words) -> Output:
    return Output(out=f"{session.machine.name}\n")


async def _identity(session: Session, words: Words) -> Output:
    """`id -u` and `id`."""
    number = _USER_IDS.get(session.user, 1000)
    return Output(out=f"{number}\n" if "-u" in words else f"uid={number}({session.user})\n")


async def _date(session: Session, _words: Words) -> Output:
    """`date +%s`."""
    return Output(out=f"{int(session.machine.clock.now().timestamp())}\n")


async def _cat(session: Session, words: Words) -> Output:
    texts = {path: read_file(session.machine, path) for path in words[1:]}
    missing = [path for path, text in texts.items() if text is None]
    complaints = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return Output(int(bool(missing)), "".join(filter(None, texts.values())), complaints)


async def _touch(session: Session, words: Words) -> Output:
    refused = [path for path in words[1:] if not may_write(session.user, path)]
    for path in words[1:]:
        if path not in refused and read_file(session.machine, path) is None:
            write_file(session.machine, path, "")
    return Output(
        int(bool(refused)), err="".join(f"touch: cannot touch '{path}': Permission denied\n" for path in refused)
    )


async def _test(session: Session, words: Words) -> Output:
    """`test` and `[`, of files and of texts."""
    return Output(int(not _holds(session, words[1:-1] if words[0] == "[" else words[1:])))


def _holds(session: Session, words: Words) -> bool:
    for joint, joined in (("-o", any), ("-a", all)):
        if joint in words:
            at = words.index(joint)
            return joined((_holds(session, words[:at]), _holds(session, words[at + 1 :])))
    match words:
        case ["!", *rest]:
            return not _holds(session, tuple(rest))
        case ["-d", path]:
            return bool(files_below(session.machine, path))
        case ["-e" | "-f" | "-r", path]:
            return read_file(session.machine, path) is not None
        case [left, sign, right] if sign in _COMPARISONS:
            return bool(_COMPARISONS[sign](left, right))
        case _:
            return any(words)


async def _sudo(session: Session, words: Words) -> Output:
    """`sudo -n COMMAND`, `sudo -n -l COMMAND` and `sudo -n -l`."""
    machine, user = session.machine, session.user
    at = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
    command, is_question = words[at:], "-l" in words[:at]
    fault = SudoFault.NONE if user == "root" else machine.faults.sudo
    if fault is SudoFault.HANGS:
        await session.sleep(_FOREVER)
    if fault in _SUDO_SAYS:
        return Output(1, err=f"{_SUDO_SAYS[fault].format(user)}\n")
    if not command:
        return _rules(session, allowed=fault is SudoFault.NONE)
    if not session.has(command[0]):
        return Output(1, err=f"sudo: {command[0]}: command not found\n")
    path = command[0] if "/" in command[0] else f"/usr/bin/{command[0]}"
    full = " ".join((path, *command[1:]))
    if fault is SudoFault.REFUSED:
        refusal = f"Sorry, user {user} is not allowed to execute '{full}' as root on {machine.name}.\n"
        return Output(1, err="" if is_question else refusal)
    if is_question:
        return Output(out=f"{full}\n")
    machine.log("sudo", f"{user} : PWD=/home/core ; USER=root ; COMMAND={' '.join(command)}")
    return await session.as_root().run(command)


def _rules(session: Session, *, allowed: bool) -> Output:
    on = f"{session.user} may run the following commands on {session.machine.name}"
    if allowed:
        return Output(out=f"User {on}:\n    (ALL) NOPASSWD: ALL\n")
    return Output(1, f"User {session.user} is not allowed to run sudo on {session.machine.name}.\n")


async def _who(session: Session, _words: Words) -> Output:
    """Return a line for each login at a terminal."""
    since = session.machine.booted_at
    logins = (user.partition(" ") for user in session.machine.users)
    return Output(out="".join(f"{name:<8} {at:<12} {since:%Y-%m-%d %H:%M} {_FROM}\n" for name, _, at in logins))


async def _tty(session: Session, _words: Words) -> Output:
    return Output(out=f"/dev/{session.terminal}\n") if session.terminal else Output(1, "not a tty\n")


async def _wall(session: Session, words: Words) -> Output:
    """`wall MESSAGE`; the machine keeps who said what."""
    session.machine.told.append(f"{session.user}: {' '.join(words[1:])}")
    return Output()


async def _apt_config(session: Session, words: Words) -> Output:
    """`apt-config shell VARIABLE KEY/b`: a boolean of the host's own files, as an assignment."""
    variable, key = words[2], words[3].removesuffix("/b")
    texts = [read_file(session.machine, path) or "" for path in files_below(session.machine, "/etc/apt/apt.conf.d")]
    values = re.findall(rf'^{re.escape(key)} "(.*)";', "\n".join(texts), re.MULTILINE)
    word = str(values[-1].lower() in {"1", "yes", "true", "on"}).lower() if values else ""
    return Output(out=f"{variable}='{word}'\n" if word else "")


async def _command(session: Session, words: Words) -> Output:
    """`command -v NAME`."""
    return Output(out=f"/usr/bin/{words[-1]}\n") if session.has(words[-1]) else Output(NOT_FOUND)


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        **SERVICE_PROGRAMS,
        **dict.fromkeys(("test", "["), _test),
        **dict.fromkeys(("reboot", "shutdown"), halt),
        **dict.fromkeys(("true", "unattended-upgrade", "."), _constant(0)),
        "apt-config": _apt_config,
        "cat": _cat,
        "command": _command,
        "date": _date,
        "echo": _echo,
        "false": _constant(1),
        "hostname": _hostname,
        "id": _identity,
        "kill": _constant(_KILLED),
        "sleep": _sleep,
        "sudo": _sudo,
        "timeout": _timeout,
        "touch": _touch,
        "tty": _tty,
        "wall": _wall,
        "who": _who,
    }
)
