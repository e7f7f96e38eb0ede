"""What a simulated host answers to a command line that comes over SSH.

A scenario may declare answers (`commands`). Otherwise a line is one of the constant scripts of rollout or of its
playbooks, known by what stands in them, or plain commands joined by `;`, `&&` and `||`. There is no shell.
"""

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import Final

from rollout.lab.hosts.questions import checked, logins, marked
from rollout.lab.hosts.session import Output, Session, may_write, write_file

_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_SHELL: Final = re.compile(r"(?:/bin/)?(?:ba)?sh -c (.*)", re.DOTALL)
# A command for one boot alone, and what else is said.
_GUARDED: Final = re.compile(
    rf"if \[ \"\$\(cat {_BOOT}\)\" = '?([\w-]*)'? \]; then\n(.*?)\n(?:else (.*); )?fi\n?", re.DOTALL
)
_AS_ROOT: Final = re.compile(r"as_root\(\) \{.*?\n?\};\s*")
_REBOOT: Final = re.compile(r'\s*if \[ "\$\(id -u\)" = 0 \]; then (.*); else (sudo -n .*); fi')
_WALL: Final = re.compile(r"if .*; then exit 0; fi; printf '%s\\n' (.*) \| wall", re.DOTALL)
_UNITS: Final = re.compile(r"for unit in ([^;]*); do\n.*is-enabled.*is-active.*done\n?", re.DOTALL)
_VARIABLE: Final = re.compile(r"\$\{?([A-Z_]+)\}?")
_TOKEN: Final = re.compile(
    r"[ \t]*(?:(?P<comment>(?<!\S)#[^\n]*)|(?P<joint>\n|;|&&|\|\|)|(?P<redirect>[12]?>>?(?:&[12])?)"
    r"|(?P<word>(?:'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|[^\s;&|<>'\"\\])+)|(?P<other>\S))"
)
_UNREADABLE: Final = 2
_NO_SHELL: Final = "bash: the lab's hosts have no shell for this; a scenario's `commands` say what they answer\n"


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
        return Output(_UNREADABLE, err=_NO_SHELL)
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


async def _told_to_all(session: Session, match: re.Match[str]) -> Output:
    (message,) = shlex.split(match[1])
    through = () if session.user == "root" else ("sudo", "-n")
    output = await session.run((*through, "wall", message))
    return output if output.status == 0 else await session.run(("wall", message))


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
    (re.compile(r"echo; echo '\S+ users'\n"), lambda session, match: logins(session, match[0])),
    (_SHELL, _in_shell),
    (_GUARDED, _guarded),
    (_REBOOT, _rebooted),
    (_AS_ROOT, _as_root),
    (_WALL, _told_to_all),
    (_UNITS, _units),
)


async def _commands(session: Session, line: str) -> Output:
    """Commands one after another, each as far as the one before lets it."""
    status, out, err, joint = 0, "", "", ";"
    for words, redirects, following in _parsed(line):
        is_due = joint not in {"&&", "||"} or (status == 0) == (joint == "&&")
        joint = following
        if not is_due or not words:
            continue
        if words[0] == "exit":
            status = int(words[1]) if len(words) > 1 else status
            break
        said = await _command(session, words, redirects)
        status, out, err = said.status, out + said.out, err + said.err
    return Output(status, out, err)


def _parsed(line: str) -> list[tuple[tuple[str, ...], list[str], str]]:
    """Commands: words, redirections (with their targets, `>&2`, `2>/dev/null`) and what joins the next one to them."""
    commands, words, redirects, is_target = [], list[str](), list[str](), False
    for token in _TOKEN.finditer(line):
        if token["comment"]:
            continue
        if token["joint"]:
            commands.append((tuple(words), redirects, token["joint"]))
            words, redirects = [], []
        elif token["redirect"]:
            redirects.append(token["redirect"])
            is_target = "&" not in token["redirect"]
        elif token["word"] and is_target:
            redirects[-1] += token["word"]
            is_target = False
        elif token["word"]:
            words.append(token["word"])
        else:
            return [(("not-a-plain-command",), [], "")]
    return [*commands, (tuple(words), redirects, "")]


async def _command(session: Session, words: tuple[str, ...], redirects: list[str]) -> Output:
    try:
        said = await session.run(tuple(_expanded(session, word) for word in words))
    except (IndexError, ValueError):
        return Output(_UNREADABLE, err=_NO_SHELL)
    if words[0] == "not-a-plain-command":
        return Output(_UNREADABLE, err=_NO_SHELL)
    out, err = said.out, said.err
    for redirect in redirects:
        match redirect:
            case ">&2" | "1>&2":
                out, err = "", err + out
            case "2>&1":
                out, err = out + err, ""
            case _ if redirect.startswith("2"):
                err = ""
            case _:
                path = redirect.lstrip("1>")
                if may_write(session.user, path):
                    write_file(session.machine, path, out)
                out = ""
    return Output(said.status, out, err)


def _expanded(session: Session, word: str) -> str:
    """Return a word without its quotes; variables are those of os-release, which a line before may have read."""
    if "'" not in word and "$" in word:
        known = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', session.machine.release.os_release, re.MULTILINE))
        word = _VARIABLE.sub(lambda match: known.get(match[1], ""), word)
    return "".join(shlex.split(word)) if word else word
