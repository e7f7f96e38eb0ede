"""From what an operator writes to `Settings`: a file that they name, variables, `--set`, and flags, which beat all."""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from rollout.adapters.local_files import is_writable_by_all
from rollout.adapters.own_pod import OWN_POD_VARIABLES
from rollout.cli.settings.schema import LISTS, TABLES, Settings, settings, settings_in
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
# What is taken from the environment besides: by --config, and by the adapters.
_WITHOUT_SETTING = ("ROLLOUT_CONFIG", "ROLLOUT_PROMETHEUS_TOKEN", "ROLLOUT_SSH_KEY_PASSPHRASE", *OWN_POD_VARIABLES)
# What a kubelet tells the pods beside Services named rollout, rollout-lab and the like.
_OF_SERVICES = re.compile(r"ROLLOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
_LINE = re.compile(r"""\s*(\[+\s*)?["']?([\w.-]+)["']?\s*[\]=]""")
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
        """Return this command, with what was typed of the tables and settings that it takes, to be pasted.

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
        typed = (setting for name, setting in settings().items() if name in self.typed)
        if given := [item for item in typed if item.name in tables or item.name.partition(".")[0] in tables]:
            flags = (f"--{item.flag}" if item.flag else f"--set {item.name}" for item in given)
            raise UsageError(f"{', '.join(flags)} {why}", hint=hint)


Source = Mapping[str, tuple[Any, str]]
"""Settings from one place, as they are written there, each with what messages call its place."""


@dataclass(frozen=True)
class SettingsFile:
    """A settings file: its name, its text, and what it says; empty without one."""

    name: str = ""
    text: str = ""
    document: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def _lines(self) -> Mapping[tuple[str, int, str], int]:
        """The line of each key, by its table and which of its like that is; of the table itself under an empty key."""
        lines, tables, table = dict[tuple[str, int, str], int](), Counter[str](), ""
        for number, text in enumerate(self.text.splitlines(), 1):
            if match := _LINE.match(text):
                is_header, name = match.groups()
                if is_header:
                    table = name
                    tables[table] += 1
                # before the first header a key has its table in it
                of, _, key = (table, "", "" if is_header else name) if table else name.partition(".")
                lines.setdefault((of, tables[of] or 1, key), number)
        return lines

    def place(self, table: str, key: str = "", number: int = 1) -> str:
        """Return the file with the line of this key, or of its table; `number` is which of its like, from 1 on."""
        line = self._lines.get((table, number, key)) or self._lines.get((table, number, ""))
        return f"{self.name}:{line}" if line else self.name

    def tables(self, name: str) -> Iterator[Source]:
        """Yield what stands in each table of this name, by key; one, which may be empty, but of `LISTS`."""
        is_list, known = name in LISTS, settings_in(name)
        content = self.document.get(name, [] if is_list else {})
        tables = content if is_list else [content]
        if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
            what, how = ("a list of tables", f"each as [[{name}]]") if is_list else ("a table", f"it once, as [{name}]")
            raise UsageError(f"{self.place(name)}: {name} is not {what}", hint=f"Write {how}.")
        for number, table in enumerate(tables, 1):
            of = f"[[{name}]] {table.get('name') or f'number {number}'}" if is_list else name
            read = {
                key: (value, f"{self.place(name, key, number)}: {of}{': ' if is_list else '.'}{key}")
                for key, value in table.items()
            }
            if strange := next((key for key in read if key not in known), None):
                raise UsageError(f"{read[strange][1]}: unknown setting", hint=_nearest(f"{name}.{strange}"))
            for key, setting in known.items():
                if setting.is_required and table.get(key) in (None, ""):
                    hint = f"{key}: {setting.help}."
                    raise UsageError(f"{self.place(name, '', number)}: {of} has no {key}", hint=hint)
            yield read


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
    if strange := next((name for name in file.document if name not in TABLES), None):
        raise UsageError(f"{file.place(strange)}: unknown table [{strange}]", hint=_nearest(strange))
    said = {name: value for source in sources for name, value in source.items()}
    read: dict[str, Any] = {}
    for name, kind in TABLES.items():
        made = [_fields(name, table) for table in file.tables(name)]
        if name in LISTS:
            read[name] = tuple(kind(**fields) for fields in made)
        else:
            beside = {key.partition(".")[2]: value for key, value in said.items() if key.startswith(f"{name}.")}
            read[name] = kind(**{**made[0], **_fields(name, beside)})
    return Given(**read, typed=frozenset(typed), file=file.name, words=tuple(words))


def _fields(table: str, written: Source) -> Mapping[str, Any]:
    """Return the values of a table; `UsageError` names where one stands, and shows it unless it is a secret."""
    read: dict[str, Any] = {}
    for key, (value, origin) in written.items():
        setting = settings_in(table)[key]
        try:
            read[setting.field] = setting.read(value)
        except UsageError as error:
            raise UsageError(f"{origin}: {error.message}", hint=error.hint) from (None if setting.hidden_in else error)
        except ValueError as error:
            raise UsageError(f"{origin}: {error}", hint=f"{setting.name}: {setting.help}.") from None
    return read


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


@cache
def _spellings() -> Mapping[str, str]:
    """Return what settings and tables may be called, each with its name."""
    keys = Counter(name.partition(".")[2] for name in settings())
    return {
        **{key: name for name in settings() if keys[key := name.partition(".")[2]] == 1},
        **{name.replace(".", "-"): name for name in settings()},
        **{setting.flag: name for name, setting in settings().items() if setting.flag},
        **{setting.name: setting.name for table in TABLES for setting in settings_in(table).values()},
        **{table: f"[[{table}]]" if table in LISTS else f"[{table}]" for table in TABLES},
    }


def _nearest(name: str) -> str:
    """Return a hint with what was meant; flags' names are understood, too."""
    for word in (name, name.rpartition(".")[2]):
        if close := get_close_matches(word, _spellings(), n=1):
            return f"Did you mean {_spellings()[close[0]]}? {_EXAMPLE}"
    return _ALL


def without_flag(word: str) -> str:
    """Return the setting without a flag that somebody means who writes this one; empty where there is none."""
    close = get_close_matches(word, _spellings(), n=1, cutoff=0.85)
    meant = settings().get(_spellings()[close[0]]) if close else None
    return meant.name if meant and not meant.flag else ""


def variables(environ: Mapping[str, str]) -> Source:
    """Return the secrets that the environment holds."""
    return {
        name: (environ[setting.hidden_in], f"the variable {setting.hidden_in}")
        for name, setting in settings().items()
        if setting.hidden_in and environ.get(setting.hidden_in)
    }


def strangers(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable that looks like a setting and is none, of which the name alone is told."""
    valid = {*_WITHOUT_SETTING, *GateVariable, *(setting.variable for setting in settings().values())}
    for name in sorted(environ):
        if name.startswith("ROLLOUT_") and name not in valid and not _OF_SERVICES.fullmatch(name):
            close = get_close_matches(name, valid, n=1, cutoff=0.8)
            hint = f"did you mean {close[0]}?" if close else "flags have variables; other settings: --set, --config"
            yield f"{name} is not a variable of rollout: {hint}"
