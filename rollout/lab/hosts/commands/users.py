"""Programs about those who are logged in: who they are, and a message to them all."""

from rollout.lab.hosts.process import Process

_FROM = "(192.0.2.7)"


async def who(process: Process) -> int:
    """`who`: a line for each login at a terminal."""
    since = process.machine.booted_at
    for user in process.machine.users:
        name, _, terminal = user.partition(" ")
        process.print(f"{name:<8} {terminal:<12} {since:%Y-%m-%d %H:%M} {_FROM}")
    return 0


async def tty(process: Process) -> int:
    """`tty`: the terminal of the session, where it has one."""
    terminal = process.environment.get("SSH_TTY", "")
    process.print(terminal or "not a tty")
    return 0 if terminal else 1


async def wall(process: Process) -> int:
    """`wall`, with its message on standard input; the machine keeps who said what."""
    message = (await process.streams.stdin.rest()).strip()
    process.machine.told.append(f"{process.user}: {message}")
    return 0
