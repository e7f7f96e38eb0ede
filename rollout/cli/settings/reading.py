"""From what an operator writes to `Settings`: a file that they name, variables, `--set`, and flags, which beat all."""

import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.own_pod import OWN_POD_VARIABLES
from rollout.cli.settings.schema import LISTS, TABLES, Settings, settings, settings_in
from rollout.cli.settings.values import Setting
from rollout.errors import UsageError
from rollout.model.gates import GateVariable
from rollout.model.text import shell_word

SELECTION = ("nodes.selector", "nodes.node", "nodes.exclude")
RULES = ("nodes", "waves", "drain", "reboot", "gates.window")
PATIENCE = (
    "drain.timeout",
    "reboot.timeout",
    "reboot.ready-timeout",
    "waves.settle-timeout",
    "gates.timeout",
    "gates.hook-timeout",
)
"""The time-outs. Only these rules may change while a rollout is interrupted."""
# What the commands take that messages name, besides what is of the cluster and its hosts.
_TAKEN = {"apply": RULES, "plan": RULES, "doctor": RULES, "status": SELECTION, "resume": PATIENCE}
# Of these tables a plan holds the rules, but for what is of each process alone.
_OWN = (
    "detect.command",
    *("waves.stop", "gates.command", "gates.interactive"),
    *("alerts.prometheus-url", "alerts.alertmanager-url", "alerts.silence"),
    *("reboot.command", "reboot.pre-playbook", "reboot.post-playbook"),
)
_TABLES = ("nodes", "detect", "waves", "drain", "reboot", "gates", "alerts", "labels")
PLANNED = tuple(
    name for name in settings() if name.partition(".")[0] in _TABLES and name not in _OWN
)
"""Settings that a saved plan has decided."""
# What is taken from the environment besides: by --config, and by the adapters.
_WITHOUT_SETTING = (
    "ROLLOUT_CONFIG",
    "ROLLOUT_PROMETHEUS_TOKEN",
    "ROLLOUT_SSH_KEY_PASSPHRASE",
    *OWN_POD_VARIABLES,
)
# What a kubelet tells the pods beside Services named rollout, rollout-lab and the like.
_OF_SERVICES = re.compile(
    r"ROLLOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_OWN_FILE = "Name another file with --config. Only you and root may write it and its folder."
_EXAMPLE = 'Write a table and a key: [drain], then timeout = "10m".'


Source = Mapping[str, tuple[Any, str]]
"""Settings from one place, as they are written there, each with what messages call its place."""


class Given(Settings):
    """The settings of a command, and which of them were `typed` on its command line, by their names.

    `said` are those that were set anywhere: each with the place that counts, as messages name it.
    `file` is the name of the settings file, which may be empty.
    """

    typed: Source = field(default_factory=dict)
    said: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    def repeated(self, command: str) -> str:
        """Return this command, with what was typed of the tables and settings that it takes, to be pasted.

        Every command takes what `--set` and the file say, except for rules, which not every command
        uses. resume has its rules from the record and takes time-outs only. They are repeated if
        the settings file may have others. A setting that the command already has is not changed,
        and secrets are left out.
        """
        words = [command]
        rules = _TAKEN.get(command.split()[1], ())
        if rules == PATIENCE and not self.file:
            rules = ()
        refused = () if rules and rules != PATIENCE else set(PLANNED).difference(rules)
        for name, (value, origin) in self.typed.items():
            setting = settings()[name]
            is_flag = not origin.startswith("--set")
            is_there = name in command or origin in command.split()
            if setting.hidden_in or is_there or name in refused:
                continue
            if is_flag and {name, name.partition(".")[0]}.isdisjoint(("cluster", "ssh", *rules)):
                continue
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, bool):
                    words.append(f"--{'' if item else 'no-'}{setting.flag}")
                else:
                    words += (
                        (origin, shell_word(str(item)))
                        if is_flag
                        else ("--set", shell_word(f"{name}={item}"))
                    )
        return " ".join((*words, *(("--config", shell_word(self.file)) if self.file else ())))

    def refuse_typed(self, names: Container[str], why: str, hint: str) -> None:
        """`UsageError` for those of these settings that were typed."""
        if typed := [
            item for name, item in settings().items() if name in self.typed and name in names
        ]:
            flags = (f"--{item.flag}" if item.flag else f"--set {item.name}" for item in typed)
            raise UsageError(f"{', '.join(flags)} {why}", hint=hint)


@dataclass(frozen=True)
class SettingsFile:
    """A settings file: its name, its text, and what it says; empty without one."""

    name: str = ""
    text: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)

    def place(self, table: str, key: str = "", number: int = 1) -> str:
        """Return the file with the line of this key, or of its table; `number` is which of its like, from 1 on."""
        table, key = re.escape(table), re.escape(key or table)
        headers = [
            match.end()
            for match in re.finditer(rf"^[ \t]*\[+\s*{table}\s*\]", self.text, re.MULTILINE)
        ]
        begin = headers[number - 1] if number <= len(headers) else 0
        # it is the first after the header, or, before any, has its table in it
        line = re.compile(rf"""^[ \t]*({table}\.)?["']?{key}["']?\s*=""", re.MULTILINE).search(
            self.text, begin
        )
        end = line.end() if line else begin
        return f"{self.name}:{len(self.text[:end].splitlines())}" if end else self.name

    def tables(self, name: str) -> Iterator[Source]:
        """Yield what stands in each table of this name, by key; one, which may be empty, but of `LISTS`."""
        is_list = name in LISTS
        known = settings_in(name)
        content = self.document.get(name, [] if is_list else {})
        tables = content if is_list else [content]
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            what, how = (
                ("a list of tables", f"each as [[{name}]]")
                if is_list
                else ("a table", f"it once, as [{name}]")
            )
            raise UsageError(f"{self.place(name)}: {name} is not {what}", hint=f"Write {how}.")
        for number, table in enumerate(tables, 1):
            of = (
                f"[[{name}]] {table.get('name') or f'number {number}'}: " if is_list else f"{name}."
            )
            read = {
                key: (value, f"{self.place(name, key, number)}: {of}{key}")
                for key, value in table.items()
            }
            if strange := next((key for key in read if key not in known), None):
                raise UsageError(
                    f"{read[strange][1]}: unknown setting", hint=_hint(f"{name}.{strange}")
                )
            for key, setting in known.items():
                if setting.is_required and table.get(key) in (None, ""):
                    place = self.place(name, number=number)
                    raise UsageError(f"{place}: {of}no {key}", hint=f"{key}: {setting.help}.")
            yield read


def read_file(path: Path | None) -> SettingsFile:
    """Return the file that the operator names, or none; `UsageError` where it cannot be read."""
    if path is None:
        return SettingsFile()
    try:
        # with the mark that some editors put first
        text = read_input(path, trust=Trust.OPERATOR).decode("utf-8-sig")
        return SettingsFile(str(path), text, tomllib.loads(text))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=_OWN_FILE) from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply", hint=_EXAMPLE) from error
    except ValueError as error:
        # This includes numbers with more digits than Python reads.
        raise UsageError(f"{path} is not TOML: {error}", hint=_EXAMPLE) from error


def given(file: SettingsFile, environment: Source, typed: Source) -> Given:
    """Return what holds: what is typed goes before the environment, and that before the file."""
    if strange := next((name for name in file.document if name not in TABLES), None):
        raise UsageError(f"{file.place(strange)}: unknown table [{strange}]", hint=_hint(strange))
    said = {**environment, **typed}
    read: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, kind in TABLES.items():
        written = list(file.tables(name))
        made = [_fields(name, table) for table in written]
        if name in LISTS:
            read[name] = tuple(kind(**fields) for fields in made)
        else:
            beside = {
                key.partition(".")[2]: value
                for key, value in said.items()
                if key.startswith(f"{name}.")
            }
            read[name] = kind(**{**made[0], **_fields(name, beside)})
            places |= {f"{name}.{key}": origin for key, (_value, origin) in written[0].items()}
    places |= {name: origin for name, (_value, origin) in said.items()}
    return Given(**read, typed=typed, said=places, file=file.name)


def _fields(table: str, written: Source) -> Mapping[str, Any]:
    """Return the values of a table; `UsageError` names where one stands, and shows it unless it is a secret."""
    read: dict[str, Any] = {}
    for key, (value, origin) in written.items():
        setting = settings_in(table)[key]
        try:
            read[key.replace("-", "_")] = setting.read(value)
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", hint=error.hint) from (
                None if setting.hidden_in else error
            )
        except ValueError as error:
            raise UsageError(
                f"{origin}: {error}", hint=f"{setting.name}: {setting.help}."
            ) from None
    return read


def assignments(words: Iterable[str]) -> Source:
    """Return what `--set KEY=VALUE` says; a list may be given item by item."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("_", "-")
        if name not in settings():
            raise UsageError(f"--set {name}: unknown setting", hint=_hint(name))
        if not equals:
            raise UsageError(f"--set {name} has no value", hint=f"Write it as --set {name}=VALUE")
        values[name] = [*values.get(name, ()), value] if settings()[name].is_list else value
    return {name: (value, f"--set {name}") for name, value in values.items()}


@cache
def _spellings() -> Mapping[str, str]:
    """Return what settings and tables may be called, each with its name."""
    names = [setting.name for table in TABLES for setting in settings_in(table).values()]
    return {
        **{name.partition(".")[2]: name for name in reversed(names)},
        **{name: name for name in (*names, *TABLES)},
    }


def nearest(word: str) -> str:
    """Return the setting or table that somebody means who writes this; empty where there is none like it."""
    close = get_close_matches(word, _spellings(), n=1)
    return _spellings()[close[0]] if close else ""


def _hint(name: str) -> str:
    meant = nearest(name) or nearest(name.rpartition(".")[2])
    return (
        f"Did you mean {meant}? {_EXAMPLE}" if meant else "See them all in docs/configuration.md."
    )


def variables(environ: Mapping[str, str], taken: Container[Setting]) -> Source:
    """Return what the environment says of these settings, and the secrets that it holds."""
    return {
        setting.name: (environ[setting.variable], f"the variable {setting.variable}")
        for setting in settings().values()
        if environ.get(setting.variable) and (setting.hidden_in or setting in taken)
    }


def strangers(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like a setting and is none, of which the name alone is told."""
    valid = {
        *_WITHOUT_SETTING,
        *GateVariable,
        *(setting.variable for setting in settings().values()),
    }
    for name in sorted(environ):
        if name.startswith("ROLLOUT_") and name not in valid and not _OF_SERVICES.fullmatch(name):
            close = get_close_matches(name, valid, n=1, cutoff=0.8)
            hint = (
                f"did you mean {close[0]}?"
                if close
                else "flags have variables; other settings: --set, --config"
            )
            yield f"{name} is not a variable of rollout: {hint}"
