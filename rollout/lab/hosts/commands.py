"""What a simulated host answers to a command line that comes over SSH.

A scenario may declare answers (`commands`). Otherwise a line is one of the constant scripts of
rollout or of its playbooks, known by what stands in them, or plain commands joined by `;`, `&&` and
`||`. There is no shell.

The probe, doctor's questions and the check for updates are lines that name a section, and mostly
the program that answers it: what they ask is read from them, and what takes a shell is played. A
real shell's answers are held against these by `tests/lab/hosts`.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rollout.gather.hosts.probe_command import EXIT_MARKER, FILE_MARKER, MARKER
from rollout.lab.hosts.engine import os_release
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.hosts.session import (
    NOT_FOUND,
    TIMED_OUT,
    CommandOutput,
    ShellSession,
    Words,
    files_below,
    read_file,
)

_SECTION: Final = re.compile(r"^ *mark ([\w-]+)(?:; (?:run (\d+) )?(.*))?$")
_ASKED: Final = re.compile(r"(?:^|then )ask ([\w-]+) (\d+) ([^;&]*)")
_OWN: Final = re.compile(r"run (\d+) sh -c (.*); printf")
_ANSWERS: Final = ("CURRENT_OP=", "xdssx ")
_DENIED: Final = "CURRENT_OP=(null)"
_MOST_PACKAGES = 4000
_MOST_SAID = 2000
_CONFIGURED: Final = ("/usr/share/coreos", "/usr/share/flatcar", "/etc/coreos", "/etc/flatcar")
_REQUIRED: Final = "/run/reboot-required"


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

    def add(self, said: CommandOutput) -> None:
        self.out += said.out
        self.err += said.err


async def _answer_sections(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    """Return the answer to a script of sections, each by what stands behind its name."""
    report = _Report()
    lines = match.string.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if asked := _ASKED.search(line):
            await _ask(session, report, asked[1], float(asked[2]), tuple(shlex.split(asked[3])))
        elif section := _SECTION.match(line):
            name, limit, command = section.groups()
            if name == "sudo-rules" and not report.out.endswith("\nsudo\n"):
                continue  # asked only where sudo lets the reboot through
            report.mark(name)
            if name == "command":
                report.out += await _run_own_command(session, following)
            elif name in _READ:
                report.out += _READ[name](session)
            elif name in _PLAYED:
                report.add(await _PLAYED[name](session))
            elif command and limit:
                report.add(await session.run(tuple(shlex.split(command)), limit=float(limit)))
            elif command:
                report.add(await answer(session, command))
    return CommandOutput(0, report.out, report.err)


async def _ask(
    session: ShellSession, report: _Report, name: str, seconds: float, words: Words
) -> None:
    """One question to a tool; those after the first are asked only where none has answered and somebody may."""
    statuses = report.statuses
    cut_off = {"sudo-bus": "bus", "sudo-client": "client"}.get(name, "")
    if name != "rpm-ostree" and (report.answered or statuses.get(cut_off) == TIMED_OUT):
        return
    said = await session.run(words, limit=seconds)
    statuses[name] = said.status
    report.mark(name)
    text = said.out.rstrip("\n")
    report.add(replace(said, out=f"{text}\n{EXIT_MARKER} {said.status}\n"))
    report.answered = report.answered or (
        _DENIED not in text and any(sign in text for sign in _ANSWERS)
    )


async def _run_own_command(session: ShellSession, line: str) -> str:
    """Return the operator's own command: what it prints, cut to its end, and its status."""
    asked = _OWN.search(line)
    said = (
        await answer(session, "".join(shlex.split(asked[2]))) if asked else CommandOutput(NOT_FOUND)
    )
    return f"{said.out}{said.err}\n{EXIT_MARKER} {said.status}\n"[-_MOST_SAID:]


async def _zincati(session: ShellSession) -> CommandOutput:
    machine = session.machine
    if not (files_below(machine, "/usr/lib/zincati") or files_below(machine, "/etc/zincati")):
        return CommandOutput()
    said = await session.run(("systemctl", "is-active", "zincati"))
    folders = (f"/{folder}/zincati/config.d" for folder in ("usr/lib", "run", "etc"))
    paths = [path for folder in folders for path in files_below(machine, folder)]
    files = "".join(f"{FILE_MARKER} {path}\n{read_file(machine, path)}\n" for path in paths)
    return replace(said, out=said.out + files)


async def _may_reboot(session: ShellSession) -> CommandOutput:
    if session.user == "root":
        return CommandOutput(out="root\n")
    said = await session.run(("sudo", "-n", "-l", "systemctl", "reboot"), limit=5)
    return replace(said, out=f"no {said.status}\n" if said.status else "sudo\n")


async def _users(session: ShellSession) -> CommandOutput:
    terminal = f"/dev/{session.terminal}" if session.terminal else "not a tty"
    said = await session.run(("who",), limit=5)
    return replace(said, out=f"TTY={terminal}\n{said.out}{EXIT_MARKER} {said.status}\n")


def _texts(session: ShellSession, *paths: str) -> list[str]:
    """Return the files of these that are there."""
    texts = (read_file(session.machine, path) for path in paths)
    return [text for text in texts if text is not None]


def _scheduled_shutdown(session: ShellSession) -> str:
    now = int(session.machine.clock.now().timestamp())
    return "".join(
        f"{text}NOW={now}\n" for text in _texts(session, "/run/systemd/shutdown/scheduled")
    )


def _show_units(session: ShellSession) -> str:
    marked = "reboot-required\n" if _texts(session, _REQUIRED) else ""
    return marked + ("rpm-ostree\n" if session.has("rpm-ostree") else "")


def _update_conf(session: ShellSession) -> str:
    return "".join(
        f"{text}\n"
        for text in _texts(session, *(f"{folder}/update.conf" for folder in _CONFIGURED))
    )


def _packages(session: ShellSession) -> str:
    # the same file by two names
    return "".join(
        f"{text[:_MOST_PACKAGES]}\n" * 2 for text in _texts(session, f"{_REQUIRED}.pkgs")
    )


_READ: Final[Mapping[str, Callable[[ShellSession], str]]] = {
    "update-conf": _update_conf,
    "shows": _show_units,
    "shutdown": _scheduled_shutdown,
    "reboot-required": lambda session: "needed\n" if _texts(session, _REQUIRED) else "not-needed\n",
    "reboot-required-packages": _packages,
    "rpm-ostree-lock": lambda session: "locked\n" if _texts(session, STAGED_LOCK) else "",
}
_PLAYED: Final[Mapping[str, Callable[[ShellSession], Awaitable[CommandOutput]]]] = {
    "zincati": _zincati,
    "may-reboot": _may_reboot,
    "users": _users,
}


async def _check_for_update(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    """Return the answer to the script that has a host look for an update: the first tool that obeys ends it."""
    err = ""
    statuses = dict[str, int]()
    status = 0
    for name, seconds, command in re.findall(
        r"^ask ([\w-]+) (\d+) ([^;&]*?) *(?:&&.*)?$", match.string, re.MULTILINE
    ):
        err += f"\n{MARKER} {name}\n"
        said = await session.run(tuple(command.split()), limit=float(seconds))
        err = err + said.err
        status = said.status
        if status == 0:
            break
        statuses[name] = status
        if name == "bus" and TIMED_OUT in statuses.values():
            return CommandOutput(TIMED_OUT, err=err)
    return CommandOutput(status, err=err)


_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_SHELL: Final = re.compile(r"(?:/bin/)?(?:ba)?sh -c (.*)", re.DOTALL)
# A command for one boot alone, and what else is said.
_GUARDED: Final = re.compile(
    rf"if \[ \"\$\(cat {_BOOT}\)\" = '?([\w-]*)'? \]; then\n(.*?)\n(?:else (.*); )?fi\n?", re.DOTALL
)
_AS_ROOT: Final = re.compile(r"as_root\(\) \{.*?\n?\};\s*")
_REBOOT: Final = re.compile(r'\s*if \[ "\$\(id -u\)" = 0 \]; then (.*); else (sudo -n .*); fi')
_UNITS: Final = re.compile(r"for unit in ([^;]*); do\n.*is-enabled.*is-active.*done\n?", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$([A-Z_]+)")
_JOINTS: Final = ("", ";", "&&", "||")
_SIGNS: Final = ";&|<>()\n"
_NO_SHELL: Final = (
    "bash: the lab's hosts have no shell for this; a scenario's `commands` say what they answer\n"
)
_UNREADABLE: Final = CommandOutput(2, err=_NO_SHELL)


async def answer(session: ShellSession, line: str) -> CommandOutput:
    """Run a command line and return all that it says."""
    declared = session.machine.settings.commands.get(line.strip())
    if declared is not None:
        if declared.reboots:
            session.machine.reboot()
        return CommandOutput(declared.exit, declared.output)
    for pattern, run in _SCRIPTS:
        if match := pattern.match(line):
            return await run(session, match)
    return await _commands(session, line)


async def _in_shell(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    try:
        script, *_ = shlex.split(match[1])
    except ValueError:
        return _UNREADABLE
    return await answer(session, script)


async def _reboot_if_same(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    if match[1] == session.machine.boot_id:
        return await answer(session, match[2].strip())
    return await answer(session, match[3]) if match[3] else CommandOutput()


async def _reboot(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    return await answer(session, match[1 if session.user == "root" else 2])


async def _as_root(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    through = "" if session.user == "root" else "sudo -n "
    return await answer(session, match.string[match.end() :].replace("as_root ", through))


async def _units(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    """Return the states of units, as the playbook that prepares hosts asks for them."""
    lines = []
    for name in match[1].split():
        states = [
            (await session.run(("systemctl", verb, name))).out.strip()
            for verb in ("is-enabled", "is-active")
        ]
        lines.append(f"{name}:{':'.join(states)}\n")
    return CommandOutput(out="".join(lines))


_SCRIPTS: Final = (
    (re.compile(r"mark\(\) \{"), _answer_sections),
    (re.compile(r"ask\(\) \{"), _check_for_update),
    (_SHELL, _in_shell),
    (_GUARDED, _reboot_if_same),
    (_REBOOT, _reboot),
    (_AS_ROOT, _as_root),
    (_UNITS, _units),
)


async def _commands(session: ShellSession, line: str) -> CommandOutput:
    """Commands one after another, each as far as the one before lets it; what takes more of a shell is refused.

    Variables are those of os-release, which a line of the playbooks reads before.
    """
    written = os_release(session.machine.os_version, session.machine.system)
    known = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', written, re.MULTILINE))
    tokens = _tokens(_VARIABLE.sub(lambda match: known.get(match[1], match[0]), line))
    said = CommandOutput()
    words = list[str]()
    is_due = True
    for token in tokens:
        if not _is_sign(token):
            words.append(token)
        elif words:
            if is_due:
                one = await session.run(tuple(words))
                said = CommandOutput(one.status, said.out + one.out, said.err + one.err)
            joint = token.strip("\n")
            words = []
            is_due = joint not in {"&&", "||"} or (said.status == 0) == (joint == "&&")
    return said if tokens else _UNREADABLE


def _tokens(line: str) -> list[str]:
    """Words, and the signs between them, of which the last ends the line; none where it takes a shell to read it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = [*lexer, ";"]
    except ValueError:
        return []
    is_plain = all(token.strip("\n") in _JOINTS for token in tokens if _is_sign(token))
    return tokens if is_plain and not re.search("[`$]", line) else []


def _is_sign(token: str) -> bool:
    return bool(token) and not token.strip(_SIGNS)
