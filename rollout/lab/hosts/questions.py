"""What a simulated host answers to the scripts that rollout asks it by: the probe, doctor's, and the check for updates.

Each script is lines that name a section, and mostly the program that answers it: what they ask is read from them, and
what takes a shell is played. A real shell's answers are held against these by `tests/lab/hosts`.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from rollout.gather.hosts.probe_command import EXIT_MARKER, FILE_MARKER, MARKER
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.hosts.session import NOT_FOUND, TIMED_OUT, Output, Session, files_below, read_file

_SECTION: Final = re.compile(r"^ *mark ([\w-]+)(?:; (?:run (\d+) )?(.*))?$")
_ASKED: Final = re.compile(r"(?:^|then )ask ([\w-]+) (\d+) ([^;&]*)")
_OWN: Final = re.compile(r"run (\d+) sh -c (.*); printf")
_ANSWERS: Final = ("CURRENT_OP=", "xdssx ")
_DENIED: Final = "CURRENT_OP=(null)"
_MOST_PACKAGES, _MOST_SAID = 4000, 2000
_CONFIGURED: Final = ("/usr/share/coreos", "/usr/share/flatcar", "/etc/coreos", "/etc/flatcar")
_REQUIRED: Final = "/run/reboot-required"

Answer = Callable[[Session, str], Awaitable[Output]]


@dataclass(slots=True)
class _Report:
    """What a host has said so far, and the statuses of what it was asked."""

    out: str = ""
    err: str = ""
    answered: bool = False
    statuses: dict[str, int] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        self.out += f"\n{MARKER} {name}\n"
        self.err += f"\n{MARKER} {name}\n"

    def add(self, said: Output) -> None:
        self.out += said.out
        self.err += said.err


async def marked(session: Session, script: str, answer: Answer) -> Output:
    """Return the answer to a script of sections; `answer` runs what stands behind a section's name."""
    report = _Report()
    lines = script.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if asked := _ASKED.search(line):
            await _ask(session, report, asked[1], float(asked[2]), shlex.split(asked[3]))
        elif section := _SECTION.match(line):
            name, limit, command = section.groups()
            if name == "sudo-rules":
                continue  # asked only where sudo lets the reboot through
            report.mark(name)
            if name == "command":
                report.out += await _own(session, following, answer)
            elif name in _READ:
                report.out += _READ[name](session)
            elif name in _PLAYED:
                await _PLAYED[name](session, report)
            elif command and limit:
                report.add(await session.run(tuple(shlex.split(command)), limit=float(limit)))
            elif command:
                report.add(await answer(session, command))
    return Output(0, report.out, report.err)


async def _ask(session: Session, report: _Report, name: str, seconds: float, words: list[str]) -> None:
    """One question to a tool; those after the first are asked only where none has answered and somebody may."""
    statuses = report.statuses
    cut_off = {"sudo-bus": "bus", "sudo-client": "client"}.get(name, "")
    if name != "rpm-ostree" and (report.answered or statuses.get(cut_off) == TIMED_OUT):
        return
    said = await run_limited(session, seconds, words)
    statuses[name] = said.status
    report.mark(name)
    text = said.out.rstrip("\n")
    report.add(replace(said, out=f"{text}\n{EXIT_MARKER} {said.status}\n"))
    report.answered = report.answered or (_DENIED not in text and any(sign in text for sign in _ANSWERS))


async def run_limited(session: Session, seconds: float, words: list[str]) -> Output:
    """Return what `timeout` makes of it: another complaint where there is no such program."""
    if session.has(words[0]):
        return await session.run(tuple(words), limit=seconds)
    return Output(NOT_FOUND, err=f"timeout: failed to run command '{words[0]}': No such file or directory\n")


async def _own(session: Session, line: str, answer: Answer) -> str:
    """Return the operator's own command: what it prints, cut to its end, and its status."""
    asked = _OWN.search(line)
    said = await answer(session, "".join(shlex.split(asked[2]))) if asked else Output(NOT_FOUND)
    return f"{said.out}{said.err}\n{EXIT_MARKER} {said.status}\n"[-_MOST_SAID:]


async def _zincati(session: Session, report: _Report) -> None:
    machine = session.machine
    if files_below(machine, "/usr/lib/zincati") or files_below(machine, "/etc/zincati"):
        report.add(await session.run(("systemctl", "is-active", "zincati")))
        for folder in ("/usr/lib/zincati/config.d", "/run/zincati/config.d", "/etc/zincati/config.d"):
            for path in files_below(machine, folder):
                report.out += f"{FILE_MARKER} {path}\n{read_file(machine, path)}\n"


async def _may_reboot(session: Session, report: _Report) -> None:
    if session.user == "root":
        report.out += "root\n"
        return
    said = await run_limited(session, 5, ["sudo", "-n", "-l", "systemctl", "reboot"])
    report.err += said.err
    if said.status:
        report.out += f"no {said.status}\n"
        return
    report.out += "sudo\n"
    report.mark("sudo-rules")
    report.add(await session.run(("sudo", "-n", "-l"), limit=5))


async def _users(session: Session, report: _Report) -> None:
    terminal = f"/dev/{session.terminal}" if session.terminal else "not a tty"
    said = await run_limited(session, 5, ["who"])
    report.add(replace(said, out=f"TTY={terminal}\n{said.out}{EXIT_MARKER} {said.status}\n"))


def _texts(session: Session, *paths: str) -> list[str]:
    """Return the files of these that are there."""
    texts = (read_file(session.machine, path) for path in paths)
    return [text for text in texts if text is not None]


def _scheduled(session: Session) -> str:
    now = int(session.machine.clock.now().timestamp())
    return "".join(f"{text}NOW={now}\n" for text in _texts(session, "/run/systemd/shutdown/scheduled"))


def _shown(session: Session) -> str:
    marked = "reboot-required\n" if _texts(session, _REQUIRED) else ""
    return marked + ("rpm-ostree\n" if session.has("rpm-ostree") else "")


def _update_conf(session: Session) -> str:
    return "".join(f"{text}\n" for text in _texts(session, *(f"{folder}/update.conf" for folder in _CONFIGURED)))


def _packages(session: Session) -> str:
    # the same file by two names
    return "".join(f"{text[:_MOST_PACKAGES]}\n" * 2 for text in _texts(session, f"{_REQUIRED}.pkgs"))


_READ: Final[Mapping[str, Callable[[Session], str]]] = MappingProxyType(
    {
        "update-conf": _update_conf,
        "shows": _shown,
        "shutdown": _scheduled,
        "reboot-required": lambda session: "needed\n" if _texts(session, _REQUIRED) else "not-needed\n",
        "reboot-required-packages": _packages,
        "rpm-ostree-lock": lambda session: "locked\n" if _texts(session, STAGED_LOCK) else "",
    }
)
_PLAYED: Final[Mapping[str, Callable[[Session, _Report], Awaitable[None]]]] = MappingProxyType(
    {"zincati": _zincati, "may-reboot": _may_reboot, "users": _users}
)


async def checked(session: Session, script: str) -> Output:
    """Return the answer to the script that has a host look for an update: the first tool that obeys ends it."""
    err, statuses, status = "", dict[str, int](), 0
    for name, seconds, command in re.findall(r"^ask ([\w-]+) (\d+) ([^;&]*?) *(?:&&.*)?$", script, re.MULTILINE):
        err += f"\n{MARKER} {name}\n"
        said = await run_limited(session, float(seconds), command.split())
        err, status = err + said.err, said.status
        if status == 0:
            break
        statuses[name] = status
        if name == "bus" and TIMED_OUT in statuses.values():
            return Output(TIMED_OUT, err=err)
    return Output(status, err=err)
