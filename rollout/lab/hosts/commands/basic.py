"""Small programs that tell about the host, the user and the time, or that run other programs."""

import asyncio
import itertools
import re
from datetime import timedelta
from typing import Final

from rollout.lab.hosts import files
from rollout.lab.hosts.machine import Power
from rollout.lab.hosts.process import NOT_FOUND, Process, Program, ProgramNotFoundError, program_path

_TIMED_OUT: Final = 124
_FAILED: Final = 125
_USER_IDS: Final = {"root": 0, "core": 500}
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float | None:
    """Seconds of `10`, `1.5s`, `2m`; None for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    return float(match[1]) * _UNITS[match[2]] if match else None


def constant(status: int) -> Program:
    """`true` and `false`."""

    async def end(_process: Process) -> int:
        return status

    return end


async def sleep(process: Process) -> int:
    """`sleep N`, in simulated seconds."""
    seconds = duration(process.arguments[0]) if process.arguments else None
    if seconds is None:
        process.complain(f"sleep: invalid time interval '{' '.join(process.arguments)}'")
        return 1
    await process.sleep(seconds)
    return 0


async def timeout(process: Process) -> int:
    """`timeout [-k N] [-s SIGNAL] N command`, in simulated seconds."""
    words = list(process.arguments)
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option in ("-k", "-s", "--signal", "--kill-after") and words:
            words.pop(0)
    seconds = duration(words[0]) if words else None
    if seconds is None or len(words) == 1:
        process.complain("timeout: missing operand")
        return _FAILED
    return await _run_limited(process, tuple(words[1:]), seconds)


async def _run_limited(process: Process, argv: tuple[str, ...], seconds: float) -> int:
    # A wait of zero would end even what answers at once; the real program has no limit then.
    limit = process.machine.clock.scaled(seconds) if seconds else None
    try:
        async with asyncio.timeout(limit):
            return await process.run(argv)
    except TimeoutError:
        return _TIMED_OUT
    except ProgramNotFoundError:
        process.complain(f"timeout: failed to run command '{argv[0]}': No such file or directory")
        return NOT_FOUND


async def env(process: Process) -> int:
    """`env [NAME=value]… command`, without a command it prints; and `nohup command`."""
    words = list(process.arguments)
    while words and ("=" in words[0] or words[0].startswith("-")):
        words.pop(0)
    if not words:
        for name, value in sorted(process.environment.items()):
            process.print(f"{name}={value}")
        return 0
    try:
        return await process.run(tuple(words))
    except ProgramNotFoundError:
        process.complain(f"{process.argv[0].rpartition('/')[2]}: '{words[0]}': No such file or directory")
        return NOT_FOUND


async def hostname(process: Process) -> int:
    """`hostname`."""
    process.print(process.machine.name)
    return 0


async def uname(process: Process) -> int:
    """`uname [-a|-r|-n|-m|-s]`."""
    machine = process.machine
    parts = {"-s": "Linux", "-n": machine.name, "-r": machine.kernel_version, "-m": "x86_64", "-o": "GNU/Linux"}
    if "-a" in process.arguments:
        process.print(f"Linux {machine.name} {machine.kernel_version} #1 SMP PREEMPT_DYNAMIC x86_64 GNU/Linux")
        return 0
    process.print(" ".join(parts[option] for option in process.arguments or ("-s",) if option in parts))
    return 0


async def identity(process: Process) -> int:
    """`id`, `id -u`, `id -un`, and `whoami`."""
    number = _USER_IDS.get(process.user, 1000)
    options = "nu" if process.argv[0] == "whoami" else "".join(sorted(set("".join(process.arguments)) - {"-"}))
    answers = {"u": str(number), "nu": process.user, "g": str(number), "gn": process.user}
    process.print(answers.get(options, f"uid={number}({process.user}) gid={number}({process.user})"))
    return 0


async def date(process: Process) -> int:
    """`date [-u] [+FORMAT]`."""
    now, forms = process.machine.clock.now(), [word[1:] for word in process.arguments if word.startswith("+")]
    form = forms[0] if forms else "%a %b %e %H:%M:%S UTC %Y"
    process.print(now.strftime(form.replace("%s", str(int(now.timestamp())))))
    return 0


async def uptime(process: Process) -> int:
    """`uptime -s`, `uptime -p` and `uptime`."""
    now, since = process.machine.clock.now(), process.machine.booted_at
    minutes = (now - since) // timedelta(minutes=1)
    if "-s" in process.arguments:
        process.print(f"{since:%Y-%m-%d %H:%M:%S}")
    elif "-p" in process.arguments:
        process.print(f"up {minutes} minutes")
    else:
        users = len(process.machine.users)
        process.print(f" {now:%H:%M:%S} up {minutes} min,  {users} users,  load average: 0.10, 0.12, 0.09")
    return 0


async def which(process: Process) -> int:
    """`which names`."""
    paths = [program_path(process, name) for name in process.arguments]
    for path in paths:
        if path is not None:
            process.print(path)
    return int(None in paths)


async def touch(process: Process) -> int:
    """`touch files`."""
    status = 0
    for path in process.arguments:
        if not files.may_write(process.user, path):
            process.complain(f"touch: cannot touch '{path}': Permission denied")
            status = 1
        elif files.read(process.machine, path) is None:
            files.write(process.machine, path, "")
    return status


async def remove(process: Process) -> int:
    """`rm [-f] files`, of files that somebody wrote."""
    force = any(word.startswith("-") and "f" in word for word in process.arguments)
    status = 0
    for path in (word for word in process.arguments if not word.startswith("-")):
        if not files.may_write(process.user, path):
            process.complain(f"rm: cannot remove '{path}': Permission denied")
            status = 1
        elif not files.remove(process.machine, path) and not force:
            process.complain(f"rm: cannot remove '{path}': No such file or directory")
            status = 1
    return status


async def journalctl(process: Process) -> int:
    """`journalctl [-u UNIT] [-n N] …`: what the host logged since it booted."""
    lines = process.machine.journal
    for option, value in itertools.pairwise(process.arguments):
        if option in ("-u", "--unit"):
            lines = [line for line in lines if f" {value.removesuffix('.service')}[" in line]
        if option in ("-n", "--lines") and value.isdigit():
            lines = lines[max(len(lines) - int(value), 0) :]
    for line in lines or ["-- No entries --"]:
        process.print(line)
    return 0


async def reboot(process: Process) -> int:
    """`reboot`, and `shutdown -r now`."""
    name = process.argv[0].rpartition("/")[2]
    if process.user != "root":
        process.complain("Call to Reboot failed: Interactive authentication required.")
        return 1
    if name == "shutdown" and "-r" not in process.arguments:
        process.machine.shut_down()
        return 0
    if process.machine.power is Power.RUNNING:
        process.machine.reboot()
    return 0
