"""From what an operator writes to `Settings`: a file that they name, variables, `--set`, and flags, which beat all."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from rollout.adapters.local_files import is_writable_by_all
from rollout.adapters.own_pod import OWN_POD_VARIABLES
from rollout.cli.settings.keys import Setting, Table
from rollout.cli.settings.schema import LISTS, Settings, settings, settings_in
from rollout.cli.terminal import say
from rollout.errors import UsageError
from rollout.model.gates import GateVariable
from rollout.model.text import shell_word

CLUSTER = ("cluster",)
SELECTION = ("nodes.selector", "nodes.node", "nodes.exclude")
HOSTS = ("ssh",)
RULES = (*SELECTION, "nodes.allow", "nodes.skip", "waves", "drain", "reboot", "gates.window")
# What commands take that messages name, besides the cluster.
_TAKEN = {
    "apply": ("nodes", *RULES, *HOSTS),
    "plan": ("nodes", *RULES, *HOSTS),
    "doctor": (*RULES, *HOSTS),
    "status": (*SELECTION, *HOSTS),
    "resume": HOSTS,
}
# Of these tables a plan holds the rules, but for what is of each process alone.
_OWN = (
    *("waves.stop", "gates.command", "gates.interactive"),
    *("alerts.prometheus-url", "alerts.alertmanager-url", "alerts.silence"),
    *("reboot.command", "reboot.pre-playbook", "reboot.post-playbook"),
)
_TABLES = ("nodes", "detect", "waves", "drain", "reboot", "gates", "alerts", "labels")
PLANNED = tuple(
    name for name in settings() if name.partition(".")[0] in _TABLES and name not in (*_OWN, "detect.command")
)
"""Settings that a saved plan has decided."""
_BY_RULES = ("apply", "plan", "doctor", "status")
_CONFIG = "ROLLOUT_CONFIG"
# What is taken from the environment alone: by the adapters.
_WITHOUT_SETTING = ("ROLLOUT_PROMETHEUS_TOKEN", "ROLLOUT_SSH_KEY_PASSPHRASE", *OWN_POD_VARIABLES)
# What a kubelet tells the pods beside Services named rollout, rollout-lab and the like.
_OF_SERVICES = re.compile(r"ROLLOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
_TABLE = re.compile(r"\s*\[+\s*([\w.\"'-]+)\s*\]+")
_EXAMPLE = 'Write a table and a key: [drain], then timeout = "10m".'
_ALL = "See them all in docs/configuration.md."


class Given(Settings):
    """The settings of a command, and which of them were `typed` on its command line.

    `file` is the name of the settings file, which may be empty. `words` are what was typed of each setting, for a
    command that goes by the same.
    """

    typed: frozenset[str] = frozenset()
    file: str = ""
    words: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def repeated(self, command: str) -> str:
        """This command, with what was typed of the tables and settings that it takes, to be pasted.

        What `--set` and `--config` say any command takes, but for rules, which not all go by (and resume has from its
        record); a setting that stands in the command is left as it is.
        """
        word = command.split()[1]
        names, decided = (*CLUSTER, *_TAKEN.get(word, ())), () if word in _BY_RULES else PLANNED
        taken = (
            word
            for name, words in self.words
            if words[0] in ("--set", "--config") or name in names or name.partition(".")[0] in names
            if not name or (name not in command and name not in decided)
            for word in words
        )
        return " ".join((command, *map(shell_word, taken)))

    def refuse_typed(self, tables: Iterable[str], why: str, hint: str) -> None:
        """`UsageError` for settings of these tables, or these settings, that were typed."""
        if given := sorted(name for name in self.typed if name in tables or name.partition(".")[0] in tables):
            raise UsageError(f"{', '.join(map(shown, given))} {why}", hint=hint)


Source = Mapping[str, tuple[Any, str]]
"""Settings from one place, as they are written there, each with what messages call its place."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file: its name, its text, and what it says; empty without one."""

    name: str = ""
    text: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)


def shown(name: str) -> str:
    """Return a setting as an operator types it: its flag, or --set with its name."""
    setting = settings()[name]
    return f"--{setting.key.flag}" if setting.key.flag else f"--set {name}"


def read_file(path: Path | None) -> SettingsFile:
    """Return the file that the operator names, or none; `UsageError` where it cannot be read."""
    if path is None:
        return SettingsFile()
    try:
        # with the mark that some editors put first
        text = path.read_bytes().decode("utf-8-sig")
        if is_writable_by_all(path):
            say(f"warning: any user may write {path}, which --config names")
        return SettingsFile(str(path), text, tomllib.loads(text))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="Name another file with --config.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}", hint=_EXAMPLE) from error


def given(
    file: SettingsFile, *sources: Source, typed: Iterable[str] = (), words: Iterable[tuple[str, tuple[str, ...]]] = ()
) -> Given:
    """Return what holds: the file's word, unless one of these sources says otherwise, the last of them first."""
    values = {name: given for layer in (_of_file(file), *sources) for name, given in layer.items()}
    tables: dict[str, dict[str, Any]] = {}
    for name, (value, origin) in values.items():
        setting = settings()[name]
        tables.setdefault(name.partition(".")[0], {})[setting.field] = _read(setting, value, origin)
    kinds = get_type_hints(Settings)
    read: dict[str, Any] = {table: kinds[table](**fields) for table, fields in tables.items()}
    read |= {name: _tables(file, name, kind) for name, kind in LISTS.items()}
    return Given(**read, typed=frozenset(typed), file=file.name, words=tuple(words))


def _read(setting: Setting, value: Any, origin: str) -> Any:
    """Return the value; `UsageError` names where it stands, and shows it unless it is a secret."""
    try:
        return setting.read(value)
    except UsageError as error:
        raise UsageError(f"{origin}: {error.message}", hint=error.hint) from (None if setting.is_secret else error)
    except ValueError as error:
        raise UsageError(f"{origin}: {error}", hint=_hint(setting)) from None


def _hint(setting: Setting) -> str:
    return f"{setting.name}: {setting.help}."


def assignments(words: Iterable[str]) -> Source:
    """Return what `--set KEY=VALUE` says; a list may be given item by item."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("_", "-")
        if name not in settings():
            raise UsageError(f"--set {name}: unknown setting", hint=_nearest(name))
        if not equals:
            raise UsageError(f"--set {name} has no value", hint=f"Write it as --set {name}=VALUE")
        values[name] = [*values.get(name, ()), value] if settings()[name].is_list else value
    return {name: (value, f"--set {name}") for name, value in values.items()}


def _of_file(file: SettingsFile) -> Source:
    values: dict[str, tuple[Any, str]] = {}
    for table, content in file.document.items():
        if table in LISTS:
            continue
        if not isinstance(content, Mapping):
            hint = f"Write it once, as [{table}]." if table in get_type_hints(Settings) else _nearest(table)
            raise UsageError(f"{_place(file, '', table)}: {table!r} is not a table", hint=hint)
        for key, value in content.items():
            if (name := f"{table}.{key}") not in settings():
                raise UsageError(f"{_place(file, table, key)}: unknown setting {name!r}", hint=_nearest(name))
            values[name] = value, f"{_place(file, table, key)}: {name}"
        if not content and not any(name.startswith(f"{table}.") for name in settings()):
            raise UsageError(f"{_place(file, table, '')}: unknown table [{table}]", hint=_nearest(table))
    return values


def _nearest(name: str) -> str:
    """Return what was meant; flags' names are understood, too."""
    flags = {setting.key.flag: key for key, setting in settings().items() if setting.key.flag}
    keys = {key.partition(".")[2]: key for key in settings()}
    meant = {**{key: key for key in settings()}, **keys, **flags, **{name: f"[[{name}]]" for name in LISTS}}
    close = difflib.get_close_matches(name, meant, n=1) or difflib.get_close_matches(
        name.rpartition(".")[2], meant, n=1
    )
    return f"Did you mean {meant[close[0]]}? {_EXAMPLE}" if close else _ALL


def without_flag(word: str) -> str:
    """Return the setting without a flag that somebody means who writes this one; empty where there is none."""
    last = [name.partition(".")[2] for name in settings()]
    meant = {key: name for key, name in zip(last, settings(), strict=True) if last.count(key) == 1}
    meant |= {name.replace(".", "-"): name for name in settings()}
    meant = {written: name for written, name in meant.items() if not settings()[name].key.flag}
    close = difflib.get_close_matches(word, meant, n=1, cutoff=0.85)
    return meant[close[0]] if close else ""


def _place(file: SettingsFile, table: str, key: str, number: int = 0) -> str:
    """Return the file, and the line of this key, or of its table; `number` is which of its like, from 1 on.

    A key in a table that is written in one line has no line of its own.
    """
    current, seen, of_table = "", 0, 0
    here = re.compile(rf"\s*({re.escape(table)}\s*\.\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.]")
    for line, text in enumerate(file.text.splitlines(), 1):
        if header := _TABLE.match(text):
            current = header[1].strip("\"'")
            seen += current == table
            if current == (table or key) and (not number or seen == number):
                of_table = of_table or line
        elif key and (match := here.match(text)) and (number in (0, seen)) and current == ("" if match[1] else table):
            return f"{file.name}:{line}"
    return f"{file.name}:{of_table}" if of_table else file.name


def _tables(file: SettingsFile, name: str, kind: type[Table]) -> tuple[Table, ...]:
    """Return the tables of a list; there is no other way to give them."""
    tables = file.document.get(name, [])
    if not isinstance(tables, Sequence) or not all(isinstance(table, Mapping) for table in tables):
        raise UsageError(f"{_place(file, '', name)}: {name} is not a list of tables", hint=f"Write each as [[{name}]].")
    return tuple(kind(**_fields(file, name, table, number)) for number, table in enumerate(tables, 1))


def _fields(file: SettingsFile, name: str, table: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    known = settings_in(name)
    of = f"[[{name}]] {table.get('name') or f'number {number}'}"
    for key in table:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"A {name} has: {', '.join(known)}."
            raise UsageError(f"{_place(file, name, key, number)}: {of}: unknown setting {key!r}", hint=hint)
    for key, setting in known.items():
        if setting.key.is_required and table.get(key) in (None, ""):
            raise UsageError(f"{_place(file, name, '', number)}: {of} has no {key}", hint=f"{key}: {setting.help}.")
    return {
        known[key].field: _read(known[key], value, f"{_place(file, name, key, number)}: {of}: {key}")
        for key, value in table.items()
    }


def variables(environ: Mapping[str, str]) -> Source:
    """Return the secrets that the environment holds."""
    secrets = {name: setting.variable for name, setting in settings().items() if setting.is_secret}
    return {
        name: (environ[variable], f"the variable {variable}")
        for name, variable in secrets.items()
        if environ.get(variable)
    }


def strangers(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like a setting and is none, of which the name alone is told."""
    written = sorted(name for name in environ if name.startswith("ROLLOUT_") and not _OF_SERVICES.fullmatch(name))
    if not written:
        return
    valid = {_CONFIG, *_WITHOUT_SETTING, *(item.variable for item in settings().values() if item.variable)}
    for name in written:
        if name not in valid and name not in set(GateVariable):
            close = difflib.get_close_matches(name, valid, n=1, cutoff=0.8)
            hint = f"did you mean {close[0]}?" if close else "flags have variables; other settings: --set, --config"
            yield f"{name} is not a variable of rollout: {hint}"
