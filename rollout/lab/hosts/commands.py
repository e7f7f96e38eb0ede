"""A simulated host's answers to command lines over SSH.

A scenario may declare answers (`commands`). Any other line is a constant script of rollout or of
its playbooks, recognized by a pattern, or plain commands joined by `;`, `&&` and `||`. There is no
shell: sections of scripts that need one are simulated. `tests/lab/hosts` compares the answers with
a real shell's.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from rollout.gather.hosts.probe_command import EXIT_MARKER, FILE_MARKER, MARKER
from rollout.gather.hosts.rollback_command import BOOT_RUNNING_COMMAND, rollback_command
from rollout.lab.hosts.engine import os_release
from rollout.lab.hosts.machine import STAGED_LOCK
from rollout.lab.hosts.session import (
    NOT_FOUND,
    TIMED_OUT,
    CommandOutput,
    ShellSession,
    files_below,
    read_file,
)
from rollout.lab.hosts.slots import boot_other, boot_running, may_roll_back, other_slot

_SECTION: Final = re.compile(r"^ *mark ([\w-]+)(?:; (?:run (\d+) )?(.*))?$")
_PROBE_TOOL: Final = re.compile(r"(?:^|then )ask ([\w-]+) (\d+) ([^;&]*)")
_UPDATE_TOOL: Final = re.compile(r"^ask ([\w-]+) (\d+) ([^;&]*?) *(?:&&.*)?$", re.MULTILINE)
_OWN_COMMAND: Final = re.compile(r"run (\d+) sh -c (.*); printf")
_MAX_PACKAGES_TEXT = 4000
_MAX_OUTPUT = 2000
_CONFIG_FOLDERS: Final = ("/usr/share/coreos", "/usr/share/flatcar", "/etc/coreos", "/etc/flatcar")
_REBOOT_REQUIRED: Final = "/run/reboot-required"


@dataclass(slots=True)
class _ProbeOutput:
    out: str = ""
    err: str = ""
    has_engine_status: bool = False
    statuses: dict[str, int] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        self.out += f"\n{MARKER} {name}\n"
        self.err += f"\n{MARKER} {name}\n"

    def add(self, output: CommandOutput) -> None:
        self.out += output.out
        self.err += output.err

    def is_skipped_by_script(self, tool: str) -> bool:
        if tool in ("rpm-ostree", "bootc"):
            return False
        without_sudo = tool.removeprefix("sudo-")
        timed_out = tool != without_sudo and self.statuses.get(without_sudo) == TIMED_OUT
        return self.has_engine_status or timed_out


async def _answer_sections(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    output = _ProbeOutput()
    lines = match.string.split("\n")
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        tool = _PROBE_TOOL.search(line)
        section = _SECTION.match(line)
        if tool is not None:
            await _run_tool(session, output, tool)
        elif section is not None:
            # The rules are listed only if sudo allows the reboot.
            if section[1] == "sudo-rules" and not output.out.endswith("\nsudo\n"):
                continue
            output.mark(section[1])
            output.add(await _answer_section(session, section, next_line))
    return CommandOutput(0, output.out, output.err)


async def _answer_section(
    session: ShellSession, section: re.Match[str], next_line: str
) -> CommandOutput:
    name, limit, command = section.groups()
    if name == "command":
        return CommandOutput(out=await _run_own_command(session, next_line))
    if name in _TEXTS:
        return CommandOutput(out=_TEXTS[name](session))
    if name in _SIMULATED:
        return await _SIMULATED[name](session)
    if command and limit:
        return await session.run(tuple(shlex.split(command)), limit=float(limit))
    if command:
        return await answer(session, command)
    return CommandOutput()


async def _run_tool(session: ShellSession, output: _ProbeOutput, tool: re.Match[str]) -> None:
    name, seconds, command = tool.groups()
    if output.is_skipped_by_script(name):
        return
    result = await session.run(tuple(shlex.split(command)), limit=float(seconds))
    text = result.out.rstrip("\n")
    output.statuses[name] = result.status
    output.mark(name)
    output.add(replace(result, out=f"{text}\n{EXIT_MARKER} {result.status}\n"))
    if _is_engine_status(text):
        output.has_engine_status = True


def _is_engine_status(text: str) -> bool:
    """The client prints `CURRENT_OP=(null)` if the bus denies the call."""
    is_denied = "CURRENT_OP=(null)" in text
    return not is_denied and ("CURRENT_OP=" in text or "xdssx " in text)


async def _run_own_command(session: ShellSession, line: str) -> str:
    result = CommandOutput(NOT_FOUND)
    match = _OWN_COMMAND.search(line)
    if match is not None:
        result = await answer(session, "".join(shlex.split(match[2])))
    return f"{result.out}{result.err}\n{EXIT_MARKER} {result.status}\n"[-_MAX_OUTPUT:]


async def _zincati(session: ShellSession) -> CommandOutput:
    machine = session.machine
    if not (files_below(machine, "/usr/lib/zincati") or files_below(machine, "/etc/zincati")):
        return CommandOutput()
    result = await session.run(("systemctl", "is-active", "zincati"))
    out = result.out
    for folder in ("usr/lib", "run", "etc"):
        for path in files_below(machine, f"/{folder}/zincati/config.d"):
            out += f"{FILE_MARKER} {path}\n{read_file(machine, path)}\n"
    return replace(result, out=out)


async def _may_reboot(session: ShellSession) -> CommandOutput:
    if session.user == "root":
        return CommandOutput(out="root\n")
    result = await session.run(("sudo", "-n", "-l", "systemctl", "reboot"), limit=5)
    return replace(result, out=f"no {result.status}\n" if result.status else "sudo\n")


async def _users(session: ShellSession) -> CommandOutput:
    terminal = f"/dev/{session.terminal}" if session.terminal else "not a tty"
    result = await session.run(("who",), limit=5)
    out = f"TTY={terminal}\n{result.out}{EXIT_MARKER} {result.status}\n"
    return replace(result, out=out)


def _read_files(session: ShellSession, *paths: str) -> list[str]:
    texts = [read_file(session.machine, path) for path in paths]
    return [text for text in texts if text is not None]


def _scheduled_shutdown(session: ShellSession) -> str:
    now = int(session.machine.clock.now().timestamp())
    texts = _read_files(session, "/run/systemd/shutdown/scheduled")
    return "".join(f"{text}NOW={now}\n" for text in texts)


def _clock(session: ShellSession) -> str:
    now = int(session.machine.clock.now().timestamp())
    return f"NOW={now}\n{''.join(_read_files(session, '/proc/uptime'))}"


def _staging_signs(session: ShellSession) -> str:
    out = "reboot-required\n" if _read_files(session, _REBOOT_REQUIRED) else ""
    return out + "".join(f"{name}\n" for name in ("rpm-ostree", "bootc") if session.has(name))


def _update_conf(session: ShellSession) -> str:
    paths = [f"{folder}/update.conf" for folder in _CONFIG_FOLDERS]
    return "".join(f"{text}\n" for text in _read_files(session, *paths))


def _reboot_required(session: ShellSession) -> str:
    return "needed\n" if _read_files(session, _REBOOT_REQUIRED) else "not-needed\n"


def _packages(session: ShellSession) -> str:
    texts = _read_files(session, f"{_REBOOT_REQUIRED}.pkgs")
    # The script reads the same file by two names.
    return "".join(f"{text[:_MAX_PACKAGES_TEXT]}\n" * 2 for text in texts)


def _has_bootc(session: ShellSession) -> str:
    return "yes\n" if session.has("bootc") else ""


def _rpm_ostree_lock(session: ShellSession) -> str:
    return "locked\n" if _read_files(session, STAGED_LOCK) else ""


# These sections need a shell.
_TEXTS: Final[Mapping[str, Callable[[ShellSession], str]]] = {
    "update-conf": _update_conf,
    "clock": _clock,
    "shows": _staging_signs,
    "shutdown": _scheduled_shutdown,
    "reboot-required": _reboot_required,
    "reboot-required-packages": _packages,
    "rpm-ostree-lock": _rpm_ostree_lock,
    "has-bootc": _has_bootc,
}
_SIMULATED: Final[Mapping[str, Callable[[ShellSession], Awaitable[CommandOutput]]]] = {
    "zincati": _zincati,
    "may-reboot": _may_reboot,
    "users": _users,
    "other-slot": other_slot,
    "may-roll-back": may_roll_back,
}


async def _check_for_update(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    err = ""
    statuses = dict[str, int]()
    status = 0
    for name, seconds, command in _UPDATE_TOOL.findall(match.string):
        err += f"\n{MARKER} {name}\n"
        result = await session.run(tuple(command.split()), limit=float(seconds))
        err += result.err
        status = result.status
        if status == 0:
            break
        statuses[name] = status
        if name == "bus" and TIMED_OUT in statuses.values():
            return CommandOutput(TIMED_OUT, err=err)
    return CommandOutput(status, err=err)


_SHELL: Final = re.compile(r"(?:/bin/)?(?:ba)?sh -c (.*)", re.DOTALL)
_IF_SAME_BOOT: Final = re.compile(
    r"if \[ \"\$\(cat /proc/sys/kernel/random/boot_id\)\" = '?([\w-]*)'? \]; then\n"
    r"(.*?)\n(?:else (.*); )?fi\n?",
    re.DOTALL,
)
_AS_ROOT: Final = re.compile(r"as_root\(\) \{.*?\n?\};\s*")
_REBOOT: Final = re.compile(r'\s*if \[ "\$\(id -u\)" = 0 \]; then (.*); else (sudo -n .*); fi')
_UNITS: Final = re.compile(r"for unit in ([^;]*); do\n.*is-enabled.*is-active.*done\n?", re.DOTALL)
_ROLLBACK: Final = re.compile(
    re.escape(rollback_command("REBOOT")).replace("REBOOT", "(.*)"), re.DOTALL
)
_VARIABLE: Final = re.compile(r"\$([A-Z_]+)")
_OPERATORS: Final = ("", ";", "&&", "||")
_OPERATOR_CHARACTERS: Final = ";&|<>()\n"
_NO_SHELL: Final = (
    "bash: the lab's hosts have no shell for this; a scenario's `commands` say what they answer\n"
)
_UNREADABLE: Final = CommandOutput(2, err=_NO_SHELL)


async def answer(session: ShellSession, line: str) -> CommandOutput:
    declared = session.machine.settings.commands.get(line.strip())
    if declared is not None:
        if declared.reboots:
            session.machine.reboot()
        return CommandOutput(declared.exit, declared.output)
    for pattern, run in _SCRIPTS:
        match = pattern.match(line)
        if match is not None:
            return await run(session, match)
    return await _run_commands(session, line)


async def _run_in_shell(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    try:
        script, *_ = shlex.split(match[1])
    except ValueError:
        return _UNREADABLE
    return await answer(session, script)


async def _run_if_same_boot(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    boot_id, script, otherwise = match.groups()
    if boot_id == session.machine.boot_id:
        return await answer(session, script.strip())
    return await answer(session, otherwise) if otherwise else CommandOutput()


async def _reboot(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    as_root, with_sudo = match.groups()
    return await answer(session, as_root if session.user == "root" else with_sudo)


async def _run_as_root(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    prefix = "" if session.user == "root" else "sudo -n "
    script = match.string[match.end() :]
    return await answer(session, script.replace("as_root ", prefix))


async def _roll_back(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    chosen = await boot_other(session)
    if chosen.status:
        return chosen
    rebooted = await answer(session, match[1])
    return CommandOutput(rebooted.status, chosen.out + rebooted.out, chosen.err + rebooted.err)


async def _undo_rollback(session: ShellSession, _match: re.Match[str]) -> CommandOutput:
    return await boot_running(session)


async def _show_units(session: ShellSession, match: re.Match[str]) -> CommandOutput:
    out = ""
    for name in match[1].split():
        enabled = await session.run(("systemctl", "is-enabled", name))
        active = await session.run(("systemctl", "is-active", name))
        out += f"{name}:{enabled.out.strip()}:{active.out.strip()}\n"
    return CommandOutput(out=out)


_SCRIPTS: Final = (
    (re.compile(r"mark\(\) \{"), _answer_sections),
    (re.compile(r"ask\(\) \{"), _check_for_update),
    (_SHELL, _run_in_shell),
    (_IF_SAME_BOOT, _run_if_same_boot),
    (_REBOOT, _reboot),
    (_ROLLBACK, _roll_back),
    (re.compile(re.escape(BOOT_RUNNING_COMMAND)), _undo_rollback),
    (_AS_ROOT, _run_as_root),
    (_UNITS, _show_units),
)


async def _run_commands(session: ShellSession, line: str) -> CommandOutput:
    """Variables have the values of os-release; other shell syntax is refused."""
    text = os_release(session.machine.os_version, session.machine.system)
    variables = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    line = _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), line)
    tokens = _tokens(line)
    if not tokens:
        return _UNREADABLE
    output = CommandOutput()
    words = list[str]()
    is_due = True
    for token in tokens:
        if not _is_operator(token):
            words.append(token)
        elif words:
            if is_due:
                result = await session.run(tuple(words))
                out = output.out + result.out
                output = CommandOutput(result.status, out, output.err + result.err)
            words = []
            is_due = _is_next_due(token.strip("\n"), output.status)
    return output


def _is_next_due(operator: str, status: int) -> bool:
    match operator:
        case "&&":
            return status == 0
        case "||":
            return status != 0
        case _:
            return True


def _tokens(line: str) -> list[str]:
    """Return words and operators, ended by `;`; none if only a shell can read it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_OPERATOR_CHARACTERS)
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        tokens = [*lexer, ";"]
    except ValueError:
        return []
    operators = [token.strip("\n") for token in tokens if _is_operator(token)]
    if any(operator not in _OPERATORS for operator in operators) or re.search("[`$]", line):
        return []
    return tokens


def _is_operator(token: str) -> bool:
    return bool(token) and not token.strip(_OPERATOR_CHARACTERS)
