"""The tables of the documents, made from the code: flags, fixed words, rights.

`python -m tests.docs.pages` writes them into the pages; the tests hold the pages against them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any

from rollout.cli.main import program
from rollout.cli.settings.keys import Setting, written
from rollout.cli.settings.schema import LISTS, settings, settings_in
from rollout.errors import ExitCode
from rollout.gather.cluster.rights import Right, apply_rights
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.plan import BlockerKind, ExclusionKind, ExclusionReason, WarningKind, kind_of
from rollout.model.progress import Outcome
from rollout.report.metrics.families import Families
from rollout.server.protocol import Answer, Kind

_ANSWERS = {
    Kind.GRANTED: "the node is cordoned and drained: reboot",
    Kind.RELEASED: "the node is proven to be back, and is in service again",
    Kind.NOT_HELD: "the host holds no slot: there was nothing to release",
    Kind.NOT_FOUND: "there is no such path",
    Kind.METHOD_NOT_ALLOWED: "the protocol knows POST only",
    Kind.MISSING_HEADER: "the header `fleet-lock-protocol: true` is missing",
    Kind.DECODE_ERROR: "the body is not the protocol's JSON",
    Kind.INVALID_CLIENT_IDENTITY: "the id or the group is empty, or cannot be one",
    Kind.BODY_TOO_LARGE: "the body is larger than 4 KiB",
    Kind.BODY_TIMEOUT: "the body did not arrive within 10 s",
    Kind.UNKNOWN_GROUP: "no such group is configured",
    Kind.GROUP_MISMATCH: "the node is not one of this group: `--group-selector`",
    Kind.UNKNOWN_ID: "no node has the machine id that this id is made of",
    Kind.DOUBLED_ID: "several nodes have that machine id",
    Kind.SEMAPHORE_FULL: "all slots of the group are held",
    Kind.WAITING_FOR_DRAIN: "the host holds a slot, and its node is not drained yet",
    Kind.WAITING_FOR_PROOF: "the node has not proven its reboot: new boot id, Ready",
    Kind.WAITING_FOR_SETTLING: "the node is back, and the cluster has not settled from its reboot",
    Kind.NODE_FAILED: "the node's last reboot ended badly, and it stays cordoned",
    Kind.LOCKED_BY_ROLLOUT: "another rollout is running or unfinished: `rollout apply`, `rollout operate`",
    Kind.OUTSIDE_WINDOW: "no maintenance window is open: `--window`",
    Kind.PAUSED: "the node, or every node, is paused: `rollout pause`",
    Kind.MAX_UNAVAILABLE: "too many nodes are unavailable already: `--max-unavailable`",
    Kind.FAILED_RECENTLY: "the node failed, and rests before the next attempt",
    Kind.NOT_NOW: "it has to wait for others: `--control-plane`, `--spread-by`",
    Kind.VERSION_HELD: "a version that failed on other nodes waits there, or may: `rollout release VERSION`",
    Kind.DRAIN_BLOCKED: "the node's drain could never end, and was not begun: the blocker that `rollout plan` shows",
    Kind.NODE_EXCLUDED: "the node may not be rebooted: not Ready, cordoned by an operator, excluded, marks of others",
    Kind.RIVAL: "another reboot coordinator is at work",
    Kind.HELD_BY_GATE: "a gate holds the node: alerts, blocking pods, a window that is too short, a sick control plane",
    Kind.LOCK_LOST: "no server holds the Lease, or none was seen to renew it yet",
    Kind.API_UNAVAILABLE: "the API server is away",
    Kind.API_ERROR: "the API server refuses, or the slots on it are not understood",
    Kind.SERVER_BUSY: "too many requests at once, or too many of one address",
    Kind.SERVER_STOPPING: "this server is about to end",
    Kind.INTERNAL_ERROR: "a defect of this program",
}
_EXIT_CODES = {
    ExitCode.OK: "done, or nothing to do",
    ExitCode.ERROR: "an error: one sentence, and a hint that says what to do",
    ExitCode.CHANGES: "nodes wait for a reboot; only with `plan --detailed-exitcode`",
    ExitCode.DECLINED: "the question was not answered with `yes`, or could not be asked",
    ExitCode.PARTIAL: "some nodes failed, were not started, or were requested and could not be rebooted",
    ExitCode.STALE: "the cluster has changed since the plan was saved",
    ExitCode.BLOCKED: "another rollout holds the lock, or a blocker would stop a drain",
    ExitCode.USAGE: "flags, environment or settings say something impossible",
    ExitCode.INTERRUPTED: "stopped by a signal",
}
_REASONS = {
    ExclusionReason.NOT_READY: "its kubelet does not report Ready",
    ExclusionReason.DELETING: "its Node is being deleted, or was since it was planned",
    ExclusionReason.CORDONED: "an operator, or another reboot coordinator, cordoned it: `--allow cordoned` reboots "
    "it too and leaves it cordoned",
    ExclusionReason.LEFT_CORDONED: "an earlier rollout failed on it and left it cordoned: `resume --retry-failed`",
    ExclusionReason.PAUSED: "`rollout pause`, or an annotation: ours, or a reboot coordinator's `reboot-paused`",
    ExclusionReason.NO_UPDATE: "no source of `detect.sources` asks for a reboot; `--allow idle` reboots it anyway",
    ExclusionReason.UNREACHABLE: "its host did not answer over SSH, or is not known",
    ExclusionReason.WRONG_HOST: "the host that answers is another machine than the Node's, or stands behind two Nodes",
    ExclusionReason.UNKNOWN_STATUS: "its host answered, but not whether it needs a reboot; or its Node does not report "
    "this boot of it",
    ExclusionReason.NO_SUDO: "the SSH user may not run `sudo -n systemctl reboot` there",
    ExclusionReason.INHIBITED: "a systemd inhibitor blocks its host's shutdown, or its staged deployment is locked",
    ExclusionReason.SHUTDOWN_PENDING: "a shutdown of its host is already scheduled",
    ExclusionReason.EXCLUDED: "`--exclude` or `--control-plane exclude` leaves it out",
    ExclusionReason.RIVAL: "another reboot coordinator holds it",
    ExclusionReason.UNKNOWN_MARKS: "an annotation of ours on it is not understood: a newer version's, or damaged",
    ExclusionReason.BLOCKED: "it has a blocker, and `--skip blocked` was given",
    ExclusionReason.DEFERRED: "rollout's own pod is on it: the next run takes it, from another node",
    ExclusionReason.OWN_NODE: "rollout's own pod is on it, and no other node takes that pod: run it from outside",
    ExclusionReason.UNPROVEN: "`operate --require-evidence`: another cluster has not proved its staged version yet",
    ExclusionReason.VERSION_HELD: "its staged version failed on as many nodes as `--max-failures` allows, over all "
    "rollouts: `rollout release VERSION`, or `--allow held`",
    ExclusionReason.FAILED_RECENTLY: "it failed a short while ago; only by `rollout operate`",
}
_BLOCKERS = {
    BlockerKind.BUDGET_NEVER: "a disruption budget never allows the eviction, however long one waits",
    BlockerKind.TWO_BUDGETS: "two budgets cover one pod: the API server refuses its eviction",
    BlockerKind.UNMANAGED_POD: "nothing would start the pod again; `--force` evicts it",
    BlockerKind.LOCAL_STORAGE: "the pod keeps data on the node, and `--no-delete-emptydir-data` was given",
    BlockerKind.DAEMONSET_GONE: "the pod's DaemonSet no longer exists; `--force` evicts it",
    BlockerKind.BUDGET_UNHEALTHY: "pods unready for longer than `--drain-timeout` keep a budget from allowing anything",
    BlockerKind.STUCK_TERMINATING: "a pod should have been gone for longer than `--drain-timeout` waits",
    BlockerKind.FITS_NOWHERE: "pods that budgets keep running fit on no other node, however long one waits",
    BlockerKind.CONTROL_PLANE_UNHEALTHY: "another control-plane node is away, or a static pod on it is not Ready; or "
    "etcd would lose its majority, or the cluster its last API server: the node does not start",
    BlockerKind.RIVAL: "another reboot coordinator runs in the cluster; `--allow` ignores it",
    BlockerKind.NODES_UNAVAILABLE: "nodes that are unavailable already use up `--max-unavailable`",
}
_WARNINGS = {
    WarningKind.POD: "a pod goes, stays or comes back: data is lost, nothing replaces it, or the reboot ends it",
    WarningKind.BUDGET_WAITING: "a budget allows no eviction now; the drain waits for it, up to `--drain-timeout`",
    WarningKind.TERMINATING: "a pod should be gone already; the drain waits for it",
    WarningKind.FITS_NOWHERE: "a pod fits on no other node: it is down until its node is back, or a budget stays shut",
    WarningKind.FAILED_RECENTLY: "a planned node failed a short while ago: `rollout operate` would leave it out",
    WarningKind.VERSION_HELD: "a planned node's staged version is held; it is taken by `--allow held`, or retried",
    WarningKind.LOGGED_IN: "users are logged in on a planned node's host: the reboot ends their sessions",
    WarningKind.NOTHING_CRITICAL: "no pod has the labels of a `[[critical]]` table: it keeps nothing",
    WarningKind.ALL_REPLICAS: "all pods of an owner without a budget are on this node, and leave at once",
}
_OUTCOMES = {
    Outcome.SUCCEEDED: "rebooted, proven, and back in service",
    Outcome.DRAIN_FAILED: "its pods could not be moved; it was not rebooted, and is given back",
    Outcome.REBOOT_REFUSED: "the host would not reboot; it is given back",
    Outcome.NOT_REBOOTED: "the host kept running its old boot; it is given back",
    Outcome.NOT_BACK: "the host did not come back in time; it stays cordoned",
    Outcome.NOT_READY: "the host is back, its node, or a pod that belongs to it, is not Ready; it stays cordoned",
    Outcome.ROLLED_BACK: "the host came back on the old version, or another source of `detect.sources` still asks "
    "for a reboot; it works, and is given back",
    Outcome.CHECK_FAILED: "its checks did not pass in time: given back before its reboot, left cordoned after it",
    Outcome.FENCED: "the lock was lost: nothing further was done to it",
    Outcome.STRANDED: "started before an interruption; its host is not known now, or its marks are not understood",
    Outcome.SKIPPED: "the node changed since it was planned; it was not touched",
    Outcome.ABORTED: "stopped on request before its reboot; it is given back",
    Outcome.FAILED: "something else; the message says what",
}


def words(meanings: Mapping[Any, str], heading: str) -> str:
    """A table of fixed words, or numbers, and what they mean."""
    return _table((heading, "means"), [(f"`{_written(word)}`", meaning) for word, meaning in meanings.items()])


def reasons() -> str:
    """The reasons with what an ending makes of a node that was asked for."""
    endings = {ExclusionKind.NOT_DONE: f"not done: {ExitCode.PARTIAL.value}", ExclusionKind.LEFT_OUT: "left out: 0"}
    rows = [(f"`{reason}`", meaning, endings[kind_of(reason)]) for reason, meaning in _REASONS.items()]
    return _table(("reason", "means", "the run ends with"), rows)


def _written(word: StrEnum | ExitCode) -> str:
    return str(word.value)


def flags() -> str:
    """A table a command, with its options that are no settings."""
    known = {setting.key.flag for setting in settings().values()} | {"config", "set"}
    sections: dict[str, list[Any]] = {}
    for command, parameter in options():
        if not {name.removeprefix("--") for name in parameter.opts} & known:
            sections.setdefault(f"rollout {command}", []).append(parameter)
    headings = ("option", "means")
    return "\n\n".join(
        f"**`{title}`**\n\n{_table(headings, [(_names(item), _meaning(item)) for item in found])}"
        for title, found in sections.items()
    )


def options() -> Iterable[tuple[str, Any]]:
    """Every option with the words of its command."""
    for path, command in _commands("", program()):
        for parameter in command.params:
            if parameter.param_type_name == "option" and "--help" not in parameter.opts:
                yield path, parameter


def _commands(path: str, command: Any) -> Iterable[tuple[str, Any]]:
    """Every command that does something, by its words."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, child in below.items():
        yield from _commands(f"{path} {name}".strip(), child)


def _meaning(flag: Any) -> str:
    default = _default(flag)
    said = flag.help.rstrip(".") + "."
    return " ".join(part for part in (said, f"Default: {default}." if default else "") if part)


def _names(flag: Any) -> str:
    written = "/".join([*flag.opts, *flag.secondary_opts])
    value = "" if flag.is_flag or flag.count else f" {_value(flag)}"
    return f"`{written}{value}`"


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
    """Fixed words that no table has."""
    explained: Mapping[type[Enum], Mapping[Any, str]] = {
        ExitCode: _EXIT_CODES,
        ExclusionReason: _REASONS,
        BlockerKind: _BLOCKERS,
        WarningKind: _WARNINGS,
        Outcome: _OUTCOMES,
        Kind: _ANSWERS,
    }
    return [str(word) for kind, meanings in explained.items() for word in kind if word not in meanings]


def rights() -> str:
    """Everything that a rollout may be asked for at the API server, and what for."""
    rows: dict[tuple[str, str, str], list[Right]] = {}
    usual, deleting = (apply_rights(LEASE_NAMESPACE, disable_eviction=deletes) for deletes in (False, True))
    for right in dict.fromkeys((*usual, *deleting)):
        rows.setdefault((_resource(right), _place(right), right.purpose), []).append(right)
    return _table(("resource", "where", "verbs", "to"), [_right(*key, alike) for key, alike in rows.items()])


def _right(resource: str, place: str, purpose: str, rights: Sequence[Right]) -> Sequence[str]:
    condition = "" if set(rights) & set(apply_rights(LEASE_NAMESPACE)) else "; with `--disable-eviction` alone"
    without = "; a rollout works without" if all(right.optional for right in rights) else ""
    return f"`{resource}`", place, ", ".join(right.verb for right in rights), f"{purpose}{condition}{without}"


def _resource(right: Right) -> str:
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    return f"{resource}.{right.group}" if right.group else resource


def _place(right: Right) -> str:
    if not right.namespace:
        return "all"
    namespace = "" if right.resource == "namespaces" else f"`{right.namespace}`"
    return ", ".join(part for part in (namespace, f"`{right.name}`" if right.name else "") if part)


def keys() -> str:
    """A table of the file each, with every key in it."""
    tables: dict[str, list[Sequence[str]]] = {}
    for setting in settings().values():
        table, _, key = setting.name.partition(".")
        tables.setdefault(f"[{table}]", []).append(_key(setting, key))
    for name in LISTS:
        tables[f"[[{name}]]"] = [_key(setting, setting.name) for setting in settings_in(name).values()]
    headings = ("key", "is", "default", "flag or variable")
    return "\n\n".join(f"**`{table}`**\n\n{_table(headings, rows)}" for table, rows in tables.items())


def _key(setting: Setting, key: str) -> Sequence[str]:
    fixed = "\\|".join(setting.choices) if len(setting.choices) in range(1, 6) else setting.metavar
    kind = "true\\|false" if setting.is_flag else fixed
    default = written(setting.default)
    short = f", `{setting.key.short}`" if setting.key.short else ""
    other = (
        f"`--{setting.key.flag}`{short}" if setting.key.flag else f"`{setting.variable}`" if setting.variable else ""
    )
    shown = f"`{key}` {kind}{', a list' if setting.is_list else ''}".strip()
    return shown, f"{setting.help}.", f"`{default}`" if default else "", other


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
    return _table(("metric", "kind", "labels", "means"), rows)


def commands() -> str:
    """Every command that help shows, those of groups as well, each with its line there."""
    rows: list[tuple[str, str]] = []
    for path, command in _commands("", program()):
        if not command.hidden:
            arguments = [item for item in command.params if item.param_type_name == "argument"]
            words = ("rollout", path, *map(_argument, arguments))
            rows.append((f"`{' '.join(words)}`", command.get_short_help_str(limit=200)))
    return _table(("command", "does"), rows)


def _argument(argument: Any) -> str:
    """As usages have it: in brackets where it may be left out."""
    name: str = argument.metavar or argument.name.upper()
    more = "..." if argument.nargs < 0 else ""
    return f"{name}{more}" if argument.required else f"[{name}]{more}"


def fleetlock_answers() -> str:
    """Every kind of answer of the FleetLock server, with its status and what it means."""
    rows = [[str(Answer(kind, "").status), f"`{kind}`", _ANSWERS[kind]] for kind in Kind]
    return _table(["status", "kind", "is answered when"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "flags": flags,
    "exit codes": lambda: words(_EXIT_CODES, "exit code"),
    "reasons": reasons,
    "blockers": lambda: words(_BLOCKERS, "kind"),
    "warnings": lambda: words(_WARNINGS, "kind"),
    "rights": rights,
    "outcomes": lambda: words(_OUTCOMES, "outcome"),
    "keys": keys,
    "commands": commands,
    "metrics": metrics,
    "fleetlock answers": fleetlock_answers,
}
