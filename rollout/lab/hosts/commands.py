"""What a simulated host answers to a command line that comes over SSH.

A scenario may declare answers (`commands`). Otherwise a line is one of the constant scripts of rollout or of its
playbooks, known by what stands in them, or plain commands joined by `;`, `&&` and `||`. There is no shell.
"""

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Final

from rollout.lab.hosts.engine import os_release
from rollout.lab.hosts.questions import checked, marked
from rollout.lab.hosts.session import Output, Session

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
_NO_SHELL: Final = "bash: the lab's hosts have no shell for this; a scenario's `commands` say what they answer\n"
_UNREADABLE: Final = Output(2, err=_NO_SHELL)


async def answer(session: Session, line: str) -> Output:
    """Run a command line and return all that it says."""
    declared = session.machine.commands.get(line.strip())
    if declared is not None:
        if declared.reboots:
            session.machine.reboot()
        return Output(declared.exit, declared.output)
    for pattern, run in _SCRIPTS:
        if match := pattern.match(line):
            return await run(session, match)
    return await _commands(session, line)


async def _in_shell(session: Session, match: re.Match[str]) -> Output:
    try:
        (script, *_) = shlex.split(match[1])
    except ValueError:
        return _UNREADABLE
    return await answer(session, script)


async def _guarded(session: Session, match: re.Match[str]) -> Output:
    if match[1] == session.machine.boot_id:
        return await answer(session, match[2].strip())
    return await answer(session, match[3]) if match[3] else Output()


async def _rebooted(session: Session, match: re.Match[str]) -> Output:
    return await answer(session, match[1 if session.user == "root" else 2])


async def _as_root(session: Session, match: re.Match[str]) -> Output:
    through = "" if session.user == "root" else "sudo -n "
    return await answer(session, match.string[match.end() :].replace("as_root ", through))


async def _units(session: Session, match: re.Match[str]) -> Output:
    """Return the states of units, as the playbook that prepares hosts asks for them."""
    lines = []
    for name in match[1].split():
        states = [(await session.run(("systemctl", verb, name))).out.strip() for verb in ("is-enabled", "is-active")]
        lines.append(f"{name}:{':'.join(states)}\n")
    return Output(out="".join(lines))


_SCRIPTS: Final[tuple[tuple[re.Pattern[str], Callable[[Session, re.Match[str]], Awaitable[Output]]], ...]] = (
    (re.compile(r"mark\(\) \{"), lambda session, match: marked(session, match.string, answer)),
    (re.compile(r"ask\(\) \{"), lambda session, match: checked(session, match.string)),
    (_SHELL, _in_shell),
    (_GUARDED, _guarded),
    (_REBOOT, _rebooted),
    (_AS_ROOT, _as_root),
    (_UNITS, _units),
)


async def _commands(session: Session, line: str) -> Output:
    """Commands one after another, each as far as the one before lets it; what takes more of a shell is refused.

    Variables are those of os-release, which a line of the playbooks reads before.
    """
    written = os_release(session.machine.os_version, session.machine.system)
    known = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', written, re.MULTILINE))
    tokens = _tokens(_VARIABLE.sub(lambda match: known.get(match[1], match[0]), line))
    said, words, is_due = Output(), list[str](), True
    for token in tokens:
        if not _is_sign(token):
            words.append(token)
        elif words:
            if is_due:
                one = await session.run(tuple(words))
                said = Output(one.status, said.out + one.out, said.err + one.err)
            joint, words = token.strip("\n"), []
            is_due = joint not in {"&&", "||"} or (said.status == 0) == (joint == "&&")
    return said if tokens else _UNREADABLE


def _tokens(line: str) -> list[str]:
    """Words, and the signs between them, of which the last ends the line; none where it takes a shell to read it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=_SIGNS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    try:
        tokens = [*lexer, ";"]
    except ValueError:
        return []
    is_plain = all(token.strip("\n") in _JOINTS for token in tokens if _is_sign(token))
    return tokens if is_plain and not re.search("[`$]", line) else []


def _is_sign(token: str) -> bool:
    return bool(token) and not token.strip(_SIGNS)
