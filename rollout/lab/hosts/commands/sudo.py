"""`sudo`, as far as it runs one command as root without asking for a password."""

from typing import Final

from rollout.lab.hosts.faults import SudoFault
from rollout.lab.hosts.process import Process, ProgramNotFoundError, program_path

_FOREVER: Final = 86_400.0
_SENTENCES: Final = {
    SudoFault.UNKNOWN_USER: "{} is not in the sudoers file.",
    SudoFault.NO_TERMINAL: "sudo: sorry, you must have a tty to run sudo",
}
_VALUED: Final = ("-u", "-g", "-p", "-C", "-h", "-r", "-t", "-U", "--user", "--group", "--prompt")


async def sudo(process: Process) -> int:
    """`sudo [-n] [-l] [-H] [-S] [-u root] COMMAND`."""
    options, argv = _parsed(process.arguments)
    listing = "-l" in options or "--list" in options
    fault = SudoFault.NONE if process.user == "root" else process.machine.faults.sudo
    if fault is SudoFault.HANGS:
        await process.sleep(_FOREVER)
    if fault is SudoFault.PASSWORD or fault in _SENTENCES:
        return _reject(process, fault, options)
    if not argv:
        return _without_command(process, fault, options, listing=listing)
    path = program_path(process, argv[0])
    if path is None:
        process.complain(f"sudo: {argv[0]}: command not found")
        return 1
    if fault is SudoFault.REFUSED:
        if not listing:
            _refuse(process, (path, *argv[1:]))
        return 1
    if listing:
        process.print(" ".join((path, *argv[1:])))
        return 0
    return await _run(process, argv)


async def _run(process: Process, argv: tuple[str, ...]) -> int:
    process.machine.log("sudo", f"{process.user} : PWD=/home/core ; USER=root ; COMMAND={' '.join(argv)}")
    try:
        return await process.run(argv, user="root")
    except ProgramNotFoundError:
        process.complain(f"sudo: {argv[0]}: command not found")
        return 1


def _reject(process: Process, fault: SudoFault, options: set[str]) -> int:
    """Refuse whatever is asked."""
    if fault is SudoFault.PASSWORD:
        return _ask_for_password(process, options)
    process.complain(_SENTENCES[fault].format(process.user))
    return 1


def _ask_for_password(process: Process, options: set[str]) -> int:
    """Nobody types one here: with `-n` sudo says so at once, without it there is no terminal to ask at."""
    if options & {"-n", "--non-interactive"}:
        process.complain("sudo: a password is required")
    else:
        process.complain(
            "sudo: a terminal is required to read the password; either use the -S option to read from standard "
            "input or configure an askpass helper"
        )
        process.complain("sudo: a password is required")
    return 1


def _refuse(process: Process, argv: tuple[str, ...]) -> None:
    machine = process.machine
    process.complain(
        f"Sorry, user {process.user} is not allowed to execute '{' '.join(argv)}' as root on {machine.name}."
    )


def _without_command(process: Process, fault: SudoFault, options: set[str], *, listing: bool) -> int:
    if options & {"-v", "-k", "-K"}:
        return 0
    if not listing:
        process.complain("usage: sudo -h | -K | -k | -V")
        return 1
    machine = process.machine
    if fault is SudoFault.REFUSED:
        process.print(f"User {process.user} is not allowed to run sudo on {machine.name}.")
        return 1
    process.print(f"User {process.user} may run the following commands on {machine.name}:")
    process.print("    (ALL) NOPASSWD: ALL")
    return 0


def _parsed(arguments: tuple[str, ...]) -> tuple[set[str], tuple[str, ...]]:
    """Options up to the command, and the command; assignments before it are skipped."""
    options: set[str] = set()
    words = list(arguments)
    while words and (words[0].startswith("-") or "=" in words[0]):
        word = words.pop(0)
        if word == "--":
            break
        if word in _VALUED and words:
            words.pop(0)
        options.update({word} if word.startswith("--") else {f"-{letter}" for letter in word[1:]})
    return options, tuple(words)
