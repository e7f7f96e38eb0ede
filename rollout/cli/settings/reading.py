"""Later sources win: a file, variables, `--set` and flags."""

import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from rollout.adapters.input_files import Trust, read_input
from rollout.adapters.input_trust import DistrustError
from rollout.adapters.own_pod import OWN_POD_VARIABLES
from rollout.cli.settings.schema import LISTS, TABLES, Settings, field_of, settings, settings_in
from rollout.cli.settings.setting import Setting
from rollout.errors import UsageError
from rollout.model.gates import GateVariable
from rollout.model.rescue import RescueVariable
from rollout.model.text import shell_word

SELECTION = ("nodes.selector", "nodes.node", "nodes.exclude")
RULES = ("nodes", "waves", "drain", "reboot", "gates.window")
TIMEOUTS = (
    "drain.timeout",
    "drain.wait-for-completion-timeout",
    "reboot.timeout",
    "reboot.ready-timeout",
    "waves.settle-timeout",
    "gates.timeout",
    "gates.hook-timeout",
)
"""Only these rules may change while a rollout is interrupted."""
_RESUME = "resume"
_FLAGS_OF_COMMAND = {
    "apply": RULES,
    "rollback": RULES,
    "plan": RULES,
    "doctor": RULES,
    "status": SELECTION,
    _RESUME: TIMEOUTS,
}
# They belong to a process, not to a plan.
_OF_PROCESS = (
    "detect.command",
    *("waves.stop", "gates.command", "gates.interactive"),
    *("alerts.prometheus-url", "alerts.alertmanager-url", "alerts.silence"),
    *("reboot.command", "reboot.pre-playbook", "reboot.post-playbook"),
    *("reboot.rescue", "reboot.rescue-timeout"),
)
_TABLES = ("nodes", "detect", "waves", "drain", "reboot", "gates", "alerts", "labels")
PLANNED = tuple(
    name for name in settings() if name.partition(".")[0] in _TABLES and name not in _OF_PROCESS
)
"""The settings that a saved plan holds."""
_OTHER_VARIABLES = (
    "ROLLOUT_CONFIG",
    "ROLLOUT_PROMETHEUS_TOKEN",
    "ROLLOUT_SSH_KEY_PASSPHRASE",
    *OWN_POD_VARIABLES,
)
# Kubelets set these for Services named rollout, rollout-lab and so on.
_SERVICE_VARIABLE = re.compile(
    r"ROLLOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
_EXAMPLE = 'Write a table and a key: [drain], then timeout = "10m".'


class PlacedValue(NamedTuple):
    """A value and its place, such as `rollout.toml:3: drain.force`."""

    value: Any
    place: str


SettingValues = Mapping[str, PlacedValue]
"""The settings of one source, by name."""


class CommandSettings(Settings):
    """The settings of a command."""

    # From the command line.
    typed: SettingValues = field(default_factory=dict)
    # Where each was set, by name, without defaults.
    places: Mapping[str, str] = field(default_factory=dict)
    # Empty for none.
    file: str = ""

    def without_calendar(self) -> "CommandSettings":
        """Leave out the calendar, whose file only one machine may have."""
        return replace(self, gates=replace(self.gates, calendar=None))

    def with_typed_settings(self, command: str) -> str:
        """Return `command` with the typed settings it accepts, except secrets."""
        words = [command]
        subcommand = command.split()[1]
        flags = _FLAGS_OF_COMMAND.get(subcommand, ())
        if subcommand == _RESUME and not self.file:
            # The record has the typed time-outs; no file can change them.
            flags = ()
        # Other commands refuse a plan's settings, even with --set.
        accepts_rules = bool(flags) and subcommand != _RESUME
        refused = () if accepts_rules else set(PLANNED).difference(flags)
        accepted_flags = {"cluster", "ssh", *flags}
        for name, (value, typed_as) in self.typed.items():
            is_present = name in command or typed_as in command.split()
            if settings()[name].is_secret or is_present or name in refused:
                continue
            table, _, _ = name.partition(".")
            has_flag = name in accepted_flags or table in accepted_flags
            is_typed_with_set = typed_as.startswith("--set")
            if not has_flag and not is_typed_with_set:
                continue
            items = value if isinstance(value, list) else [value]
            for item in items:
                words += _flag_words(name, item, typed_as)
        if self.file:
            words += ("--config", shell_word(self.file))
        return " ".join(words)

    def refuse_typed_settings(self, names: Container[str], *, why: str, hint: str) -> None:
        """Raise `UsageError` if one was typed; `why` continues `--force …`."""
        flags = list[str]()
        for name, setting in settings().items():
            if name in self.typed and name in names:
                flags.append(f"--{setting.flag}" if setting.flag else f"--set {name}")
        if flags:
            raise UsageError(f"{', '.join(flags)} {why}", hint=hint)


def _flag_words(name: str, item: Any, typed_as: str) -> Sequence[str]:
    if isinstance(item, bool):
        negation = "" if item else "no-"
        return [f"--{negation}{settings()[name].flag}"]
    if typed_as.startswith("--set"):
        return ["--set", shell_word(f"{name}={item}")]
    return [typed_as, shell_word(str(item))]


class SettingsFile(Struct, frozen=True):
    """A settings file; empty if there is none."""

    name: str = ""
    text: str = ""
    document: Mapping[str, Any] = {}

    def place(self, table: str, key: str = "", number: int = 1) -> str:
        """Return the line of this key, or else of its table: `rollout.toml:12`.

        `number`, from 1, counts tables with this name. TOML readers do not tell lines.
        """
        key = re.escape(key or table)
        table = re.escape(table)
        header = re.compile(rf"^[ \t]*\[+\s*{table}\s*\]", re.MULTILINE)
        # Also matches `drain.timeout =` above all tables.
        assignment = re.compile(rf"""^[ \t]*({table}\.)?["']?{key}["']?\s*=""", re.MULTILINE)
        headers = list(header.finditer(self.text))
        end_of_header = headers[number - 1].end() if number <= len(headers) else 0
        found = assignment.search(self.text, end_of_header)
        end = found.end() if found else end_of_header
        line_number = len(self.text[:end].splitlines())
        return f"{self.name}:{line_number}" if line_number else self.name

    def tables(self, name: str) -> Iterator[SettingValues]:
        """Yield the tables of this name: one, or any number for `LISTS`.

        Raises `UsageError` for an unknown or missing key.
        """
        for number, table in enumerate(self._raw_tables(name), 1):
            prefix = f"{name}."
            if name in LISTS:
                prefix = f"[[{name}]] {table.get('name') or f'number {number}'}: "
            values = self._placed_values(name, table, number, prefix)
            for key, setting in settings_in(name).items():
                is_missing = table.get(key) in (None, "")
                if setting.is_required and is_missing:
                    place = self.place(name, number=number)
                    raise UsageError(
                        f"{place}: {prefix}{key} is missing", hint=f"{key}: {setting.help}."
                    )
            yield values

    def _placed_values(
        self, name: str, table: Mapping[str, Any], number: int, prefix: str
    ) -> SettingValues:
        values: dict[str, PlacedValue] = {}
        for key, value in table.items():
            is_list_of_tables = f"{name}.{key}" in LISTS
            # It is read under its own name.
            if is_list_of_tables:
                continue
            place = f"{self.place(name, key, number)}: {prefix}{key}"
            if key not in settings_in(name):
                raise UsageError(f"{place}: unknown setting", hint=_hint(f"{name}.{key}"))
            values[key] = PlacedValue(value, place)
        return values

    def _value_at(self, name: str, default: Any) -> Any:
        value: Any = self.document
        for key in name.split("."):
            if not isinstance(value, Mapping) or key not in value:
                return default
            value = value[key]
        return value

    def _raw_tables(self, name: str) -> list[Mapping[str, Any]]:
        if name not in LISTS:
            table = self._value_at(name, {})
            if isinstance(table, Mapping):
                return [table]
            raise UsageError(
                f"{self.place(name)}: {name} is not a table", hint=f"Write it once, as [{name}]."
            )
        tables = self._value_at(name, [])
        if isinstance(tables, list) and all(isinstance(table, Mapping) for table in tables):
            return tables
        raise UsageError(
            f"{self.place(name)}: {name} is not a list of tables", hint=f"Write each as [[{name}]]."
        )


def read_file(path: Path | None) -> SettingsFile:
    """Return an empty file for None. Raise `UsageError` if unreadable."""
    if path is None:
        return SettingsFile()
    try:
        # Some editors write a byte order mark.
        text = read_input(path, trust=Trust.NOT_WRITABLE_BY_OTHERS).decode("utf-8-sig")
        return SettingsFile(str(path), text, tomllib.loads(text))
    except OSError as error:
        hint = "Specify another file with --config."
        if isinstance(error, DistrustError):
            hint = (
                f"{error.hint}; or pass its content: --config /dev/stdin < {shell_word(str(path))}"
            )
        raise UsageError(f"cannot read {path}: {error.strerror}", hint=hint) from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply", hint=_EXAMPLE) from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", hint=_EXAMPLE) from error


def merge_settings(
    file: SettingsFile, environment: SettingValues, typed: SettingValues
) -> CommandSettings:
    """Raise `UsageError` for an unknown table or a bad value."""
    for name in file.document:
        if name not in TABLES:
            raise UsageError(f"{file.place(name)}: unknown table [{name}]", hint=_hint(name))
    not_in_file = {**environment, **typed}
    tables: dict[str, Any] = {}
    places: dict[str, str] = {}
    for name, table_class in TABLES.items():
        tables_in_file = list(file.tables(name))
        fields_of_tables = [_read_fields(name, table) for table in tables_in_file]
        if name in LISTS:
            tables[field_of(name)] = tuple(table_class(**fields) for fields in fields_of_tables)
            continue
        [table_in_file] = tables_in_file
        [fields_in_file] = fields_of_tables
        overrides = {
            key: not_in_file[setting.name]
            for key, setting in settings_in(name).items()
            if setting.name in not_in_file
        }
        tables[name] = table_class(**{**fields_in_file, **_read_fields(name, overrides)})
        places |= {f"{name}.{key}": value.place for key, value in table_in_file.items()}
    places |= {name: placed.place for name, placed in not_in_file.items()}
    return CommandSettings(**tables, typed=typed, places=places, file=file.name)


def _read_fields(table: str, content: SettingValues) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for key, (value, place) in content.items():
        setting = settings_in(table)[key]
        try:
            values[key.replace("-", "_")] = setting.read(value)
        except UsageError as error:
            cause = None if setting.is_secret else error
            raise UsageError(f"{place}: {error.message}", hint=error.hint) from cause
        except ValueError as error:
            hint = f"{setting.name}: {setting.help}."
            raise UsageError(f"{place}: {error}", hint=hint) from None
    return values


def assignments(words: Iterable[str]) -> SettingValues:
    """Read `--set KEY=VALUE`. Repeating a list's key adds an item."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip().replace("_", "-")
        if name not in settings():
            raise UsageError(f"--set {name}: unknown setting", hint=_hint(name))
        if not equals:
            raise UsageError(f"--set {name} has no value", hint=f"Write it as --set {name}=VALUE")
        if name in SELECTION and not value:
            raise UsageError(
                f"--set {name}: it is empty, and would select other nodes",
                hint="Was a shell variable unset?",
            )
        if settings()[name].is_list:
            values[name] = [*values.get(name, ()), value]
        else:
            values[name] = value
    return {name: PlacedValue(value, f"--set {name}") for name, value in values.items()}


@cache
def _spellings() -> Mapping[str, str]:
    """Return full names by what users may type, such as `timeout`."""
    spellings = {table: table for table in TABLES}
    for table in TABLES:
        for setting in settings_in(table).values():
            spellings[setting.name] = setting.name
            _, _, key = setting.name.partition(".")
            spellings.setdefault(key, setting.name)
    return spellings


def nearest(word: str) -> str:
    """Return the most similar setting or table, or an empty string."""
    close = get_close_matches(word, _spellings(), n=1)
    return _spellings()[close[0]] if close else ""


def _hint(name: str) -> str:
    similar = nearest(name) or nearest(name.rpartition(".")[2])
    if similar:
        return f"Did you mean {similar}? {_EXAMPLE}"
    return "See Configuration in rollout's documentation."


def from_environment(environ: Mapping[str, str], accepted: Container[Setting]) -> SettingValues:
    """Return the variables of `accepted` settings and of all secrets."""
    values: dict[str, PlacedValue] = {}
    for setting in settings().values():
        value = environ.get(setting.variable)
        if value and (setting.is_secret or setting in accepted):
            values[setting.name] = PlacedValue(value, f"the variable {setting.variable}")
    return values


def unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield warnings about unknown variables that start with ROLLOUT_."""
    known = {*_OTHER_VARIABLES, *GateVariable, *RescueVariable}
    known.update(setting.variable for setting in settings().values())
    for name in sorted(environ):
        is_of_service = _SERVICE_VARIABLE.fullmatch(name) is not None
        if not name.startswith("ROLLOUT_") or is_of_service or name in known:
            continue
        similar = get_close_matches(name, known, n=1, cutoff=0.8)
        hint = "only flags can be set in the environment; for other settings, use --set or --config"
        if similar:
            hint = f"did you mean {similar[0]}?"
        yield f"{name} is not a rollout variable: {hint}"
