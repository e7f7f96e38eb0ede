"""The programs of a simulated host: few, and with the few options that rollout and its playbooks use.

Whoever wants a real host has `tests/e2e`; a scenario's `commands` say what else a host answers.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout.lab.hosts.faults import SudoFault
from rollout.lab.hosts.services import SERVICE_PROGRAMS, halt
from rollout.lab.hosts.session import Output, Program, Session, Words, read_file

_FOREVER: Final = 86_400.0
_FROM: Final = "(192.0.2.7)"
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


async def _cat(session: Session, words: Words) -> Output:
    texts = {path: read_file(session.machine, path) for path in words[1:]}
    missing = [path for path, text in texts.items() if text is None]
    complaints = "".join(f"cat: {path}: No such file or directory\n" for path in missing)
    return Output(int(bool(missing)), "".join(filter(None, texts.values())), complaints)


async def _test(session: Session, words: Words) -> Output:
    """`test -e FILE`, and more of them joined by `-o`."""
    return Output(int(all(read_file(session.machine, path) is None for path in words[2::3])))


async def _sudo(session: Session, words: Words) -> Output:
    """`sudo -n COMMAND` and `sudo -n -l COMMAND`."""
    machine, user = session.machine, session.user
    at = next((at for at, word in enumerate(words) if at and not word.startswith("-")), len(words))
    command, is_question = words[at:], "-l" in words[:at]
    fault = SudoFault.NONE if user == "root" else machine.faults.sudo
    if fault is SudoFault.HANGS:
        await session.sleep(_FOREVER)
    if fault in _SUDO_SAYS:
        return Output(1, err=f"{_SUDO_SAYS[fault].format(user)}\n")
    if not command or not session.has(command[0]):
        return Output(1, err=f"sudo: {' '.join(command[:1])}: command not found\n")
    path = command[0] if "/" in command[0] else f"/usr/bin/{command[0]}"
    full = " ".join((path, *command[1:]))
    if fault is SudoFault.REFUSED:
        refusal = f"Sorry, user {user} is not allowed to execute '{full}' as root on {machine.name}.\n"
        return Output(1, err="" if is_question else refusal)
    if is_question:
        return Output(out=f"{full}\n")
    machine.log("sudo", f"{user} : PWD=/home/core ; USER=root ; COMMAND={' '.join(command)}")
    return await session.as_root().run(command)


async def _who(session: Session, _words: Words) -> Output:
    """Return a line for each login at a terminal."""
    since = session.machine.booted_at
    logins = (user.partition(" ") for user in session.machine.users)
    return Output(out="".join(f"{name:<8} {at:<12} {since:%Y-%m-%d %H:%M} {_FROM}\n" for name, _, at in logins))


PROGRAMS: Final[Mapping[str, Program]] = MappingProxyType(
    {
        **SERVICE_PROGRAMS,
        **dict.fromkeys(("reboot", "shutdown"), halt),
        **dict.fromkeys(("true", "."), _constant(0)),
        "cat": _cat,
        "echo": _echo,
        "false": _constant(1),
        "hostname": _hostname,
        "sleep": _sleep,
        "sudo": _sudo,
        "test": _test,
        "timeout": _timeout,
        "who": _who,
    }
)
