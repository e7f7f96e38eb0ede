"""The tables of the documents, made from the code: flags, enumerated values, permissions.

`python -m tests.docs.pages` writes them into the pages; the tests hold the pages against them.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from rollout.cli.main import root_command
from rollout.cli.settings.schema import LISTS, settings, settings_in
from rollout.cli.settings.setting import Setting
from rollout.cli.settings.values import default_text
from rollout.errors import ExitCode
from rollout.execution.node.transitions import TABLE, TAKEN_UP
from rollout.gather.cluster.rights import Right, apply_rights
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.plan import BlockerKind, ExclusionReason, WarningKind
from rollout.model.policy import CourtesyPolicy, DrainPolicy, Policy, Restart
from rollout.model.progress import Edge, Outcome, Phase
from rollout.report.journal_check import Rule
from rollout.report.metric_families import Families
from rollout.server.protocol import AnswerKind

# What each enumerated value means, by the enum that has it.
_WORDS: Mapping[str, Mapping[str, str]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
)
_KINDS: Sequence[type[Enum]] = (
    ExitCode,
    ExclusionReason,
    BlockerKind,
    WarningKind,
    Outcome,
    Edge,
    Rule,
    AnswerKind,
)


def words(kind: type[Enum], heading: str) -> str:
    """A table of enumerated values, or numbers, and what they mean."""
    return _table(
        (heading, "description"),
        [(f"`{word}`", meaning) for word, meaning in _WORDS[kind.__name__].items()],
    )


def phases() -> str:
    """The transition table as a diagram, without what another process does, and without loops."""
    moves = [
        f"{phase} --> {target}: {edge}"
        for phase, edges in TABLE.items()
        for edge, target in edges.items()
        if edge not in TAKEN_UP and target is not phase
    ]
    lines = [f"[*] --> {Phase.PENDING}", *moves, f"{Phase.DONE} --> [*]", f"{Phase.FAILED} --> [*]"]
    return "\n".join(("```mermaid", "stateDiagram-v2", *(f"    {line}" for line in lines), "```"))


def moves() -> str:
    """The transition table with what each edge means."""
    rows = []
    for word, meaning in _WORDS["Edge"].items():
        by_target: dict[Phase, list[str]] = {}
        for phase, edges in TABLE.items():
            if Edge(word) in edges:
                by_target.setdefault(edges[Edge(word)], []).append(f"`{phase}`")
        for target, phases_before in by_target.items():
            rows.append((f"`{word}`", ", ".join(phases_before), f"`{target}`", meaning))
    return _table(("edge", "from", "to", "description"), rows)


def reasons() -> str:
    """The reasons, each with the exit code of a run that succeeds otherwise."""
    exit_codes = {True: str(ExitCode.PARTIAL.value), False: "0"}
    rows = [
        (f"`{reason}`", meaning, exit_codes[ExclusionReason(reason).is_trouble])
        for reason, meaning in _WORDS["ExclusionReason"].items()
    ]
    return _table(("reason", "description", "exit code"), rows)


def flags() -> str:
    """A table a command, with its options that are no settings."""
    known = {setting.flag for setting in settings().values()} | {"config", "set"}
    sections: dict[str, list[Any]] = {}
    for command, parameter in options():
        if not {name.removeprefix("--") for name in parameter.opts} & known:
            sections.setdefault(f"rollout {command}", []).append(parameter)
    headings = ("option", "description")
    return "\n\n".join(
        f"**`{title}`**\n\n{_table(headings, [(_names(item), _meaning(item)) for item in found])}"
        for title, found in sections.items()
    )


def options() -> Iterable[tuple[str, Any]]:
    """Every option with the words of its command and the arguments that it requires."""
    for path, command in _commands("", root_command()):
        required = [
            one.metavar
            for one in command.params
            if one.param_type_name == "argument" and one.required
        ]
        for parameter in command.params:
            if parameter.param_type_name == "option" and "--help" not in parameter.opts:
                yield " ".join((path, *required)), parameter


def _commands(path: str, command: Any) -> Iterable[tuple[str, Any]]:
    """Every command that does something, by its words."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, child in below.items():
        yield from _commands(f"{path} {name}".strip(), child)


def _meaning(flag: Any) -> str:
    text, written = split_default(flag.help)
    default = f"`{written}`" if written else _default(flag)
    said = text.rstrip(".") + "."
    return " ".join(part for part in (said, f"Default: {default}." if default else "") if part)


def split_default(text: str) -> tuple[str, str]:
    """Split `How many [1]`, as help has it, into the description and the default."""
    match = re.fullmatch(r"(.+) \[(.+)\]", text)
    return (match[1], match[2]) if match else (text, "")


def _names(flag: Any) -> str:
    names = "/".join([*flag.opts, *flag.secondary_opts])
    value = "" if flag.is_flag or flag.count else f" {_value(flag)}"
    return f"`{names}{value}`"


def _value(flag: Any) -> str:
    choices = flag.type_descriptor.choices
    return "\\|".join(choices) if choices else (flag.metavar or "VALUE").replace("|", "\\|")


def _default(flag: Any) -> str:
    if flag.count or flag.default is None or flag.default is False or flag.default == "":
        return ""
    return f"`{'on' if flag.default is True else flag.default}`"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def unexplained() -> list[str]:
    """Enumerated values that no table has, and those of a table that are no more."""
    return [
        word
        for kind in _KINDS
        for word in {str(one.value) for one in kind} ^ _WORDS[kind.__name__].keys()
    ]


_WITH_FURTHER_RIGHTS = {
    "--disable-eviction": Policy(drain=DrainPolicy(disable_eviction=True)),
    "drain.restart": Policy(drain=DrainPolicy(restart=Restart.BLOCKED)),
    "labels.conditions": Policy(courtesy=CourtesyPolicy(conditions=True)),
}


def rights() -> str:
    """Everything that a rollout may be asked for at the API server, and what for."""
    rows: dict[tuple[str, str, str], list[Right]] = {}
    for policy in (Policy(), *_WITH_FURTHER_RIGHTS.values()):
        for right in apply_rights(LEASE_NAMESPACE, policy):
            alike = rows.setdefault((_resource(right), _place(right), right.purpose), [])
            if right not in alike:
                alike.append(right)
    return _table(
        ("resource", "scope", "verbs", "purpose"),
        [_right(*key, alike) for key, alike in rows.items()],
    )


def _right(resource: str, place: str, purpose: str, rights: Sequence[Right]) -> Sequence[str]:
    condition = ""
    if not set(rights) & set(apply_rights(LEASE_NAMESPACE)):
        (setting,) = [
            setting
            for setting, policy in _WITH_FURTHER_RIGHTS.items()
            if set(rights) <= set(apply_rights(LEASE_NAMESPACE, policy))
        ]
        condition = f"; needed only with `{setting}`"
    without = "; optional" if all(right.optional for right in rights) else ""
    return (
        f"`{resource}`",
        place,
        ", ".join(right.verb for right in rights),
        f"{purpose}{condition}{without}",
    )


def _resource(right: Right) -> str:
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    return f"{resource}.{right.group}" if right.group else resource


def _place(right: Right) -> str:
    if not right.namespace:
        return "cluster-wide"
    namespace = "" if right.resource == "namespaces" else f"`{right.namespace}`"
    name = f"`{right.name}`" if right.name else ""
    return " in ".join(part for part in (name, namespace) if part)


def keys() -> str:
    """A table of the file each, with every key in it."""
    tables: dict[str, list[Sequence[str]]] = {}
    for setting in settings().values():
        table, _, key = setting.name.partition(".")
        tables.setdefault(f"[{table}]", []).append(_key(setting, key))
    for name in LISTS:
        tables[f"[[{name}]]"] = [_key(setting, key) for key, setting in settings_in(name).items()]
    headings = ("key", "description", "default", "flag or variable")
    return "\n\n".join(
        f"**`{table}`**\n\n{_table(headings, rows)}" for table, rows in tables.items()
    )


def _key(setting: Setting, key: str) -> Sequence[str]:
    fixed = "\\|".join(setting.words) if len(setting.words) in range(1, 6) else setting.metavar
    kind = "true\\|false" if setting.kind is bool else fixed
    text, written = split_default(setting.help)
    default = f"`{written or default_text(setting.default)}`".replace("``", "")
    if setting.name == "waves.max-unavailable":
        default += "; with FleetLock, the sum of the slots"
    short = f", `{setting.short}`" if setting.short else ""
    other = (
        f"`--{setting.flag}`{short}"
        if setting.flag
        else f"`{setting.variable}`"
        if setting.variable
        else ""
    )
    shown = f"`{key}` {kind}{', a list' if setting.is_list else ''}".strip()
    return shown, _escaped(f"{text}."), default, other


def metrics() -> str:
    """Every metric with its labels."""
    rows = [
        (
            f"`{metric.name}{'_total' if metric.type == 'counter' else ''}`",
            metric.type,
            ", ".join(f"`{label}`" for label in family.labels),
            metric.documentation,
        )
        for family in Families("").all
        for metric in family.instrument.describe()
    ]
    return _table(("metric", "type", "labels", "description"), rows)


def commands() -> str:
    """Every command that help shows, those of groups as well, each with its line there."""
    rows: list[tuple[str, str]] = []
    for path, command in _commands("", root_command()):
        if not command.hidden:
            arguments = [item for item in command.params if item.param_type_name == "argument"]
            words = ("rollout", path, *map(_argument, arguments))
            rows.append((_escaped(f"`{' '.join(words)}`"), command.get_short_help_str(limit=200)))
    return _table(("command", "description"), rows)


def _escaped(text: str) -> str:
    """The text for a cell of a table, where a bare pipe would begin the next cell."""
    return text.replace("|", "\\|")


def _argument(argument: Any) -> str:
    """As usages have it: in brackets where it may be left out."""
    name: str = argument.metavar or argument.name.upper()
    more = "..." if argument.nargs < 0 else ""
    return f"{name}{more}" if argument.required else f"[{name}]{more}"


def fleetlock_answers() -> str:
    """Every kind of answer of the FleetLock server, with its status and what it means."""
    rows = [
        [str(AnswerKind(word).status), f"`{word}`", meaning]
        for word, meaning in _WORDS["AnswerKind"].items()
    ]
    return _table(["status", "kind", "when it is sent"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "phases": phases,
    "moves": moves,
    "rules": lambda: words(Rule, "rule"),
    "flags": flags,
    "exit codes": lambda: words(ExitCode, "exit code"),
    "reasons": reasons,
    "blockers": lambda: words(BlockerKind, "kind"),
    "warnings": lambda: words(WarningKind, "kind"),
    "rights": rights,
    "outcomes": lambda: words(Outcome, "outcome"),
    "keys": keys,
    "commands": commands,
    "metrics": metrics,
    "fleetlock answers": fleetlock_answers,
}
