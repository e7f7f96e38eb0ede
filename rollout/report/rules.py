"""The rules of a plan in a few lines, as they stand now; and of a recorded run, in the words of the flags."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime

from rollout.model.courtesy import CourtesyPolicy
from rollout.model.detection import DEFAULT_SOURCES
from rollout.model.gates import GatePolicy, WindowPolicy
from rollout.model.policy import Policy
from rollout.model.text import elapsed, printable, shortened
from rollout.planning.document import policy_document
from rollout.planning.rules import relaxed_rules
from rollout.planning.schedule import Schedule

_WEAKER = "! weaker"


def rule_lines(policy: Policy, now: datetime) -> Iterator[str]:
    """A line a rule that the operator has not left alone, and with its sign each that gives up safety."""
    yield from (
        f"! {text}" if label == _WEAKER else f"{label.capitalize()}: {text}" for label, text in rules(policy, now)
    )


def rules(policy: Policy, now: datetime) -> Iterator[tuple[str, str]]:
    """The same as pairs: which kind of rule, and what it says."""
    if limits := ", ".join(_limits(policy)):
        yield "limits", limits
    yield from (("pool", text) for text in _pools(policy))
    yield from _windows(policy.gates.windows, now)
    yield from (("gate", text) for text in _gates(policy.gates))
    yield from (("needed by", text) for text in _sources(policy))
    yield from (("courtesy", text) for text in _courtesy(policy.courtesy))
    if policy.own_reboot_command:
        # the command itself stands in no plan
        yield "reboot", "the operator's own reboot.command"
    yield from ((_WEAKER, printable(text)) for text in _weakened(policy))


def _limits(policy: Policy) -> Iterator[str]:
    usual = Policy()
    if policy.max_unavailable != usual.max_unavailable:
        yield f"{policy.max_unavailable} at once"
    if policy.canary:
        yield f"canary {policy.canary}"
    if policy.ramp:
        yield f"ramp {', '.join(map(str, policy.ramp))}"
    if policy.spread_by:
        yield f"spread by {printable(policy.spread_by)}"
    if policy.strategy != usual.strategy:
        yield policy.strategy
    if policy.max_failures != usual.max_failures:
        yield f"ends after {policy.max_failures} failed"
    times = {
        "drain": (policy.drain.timeout, usual.drain.timeout),
        "back": (policy.reboot_timeout, usual.reboot_timeout),
        "Ready": (policy.ready_timeout, usual.ready_timeout),
        "settle": (policy.settle_timeout, usual.settle_timeout),
        "soak": (policy.gates.soak, usual.gates.soak),
    }
    yield from (f"{name} {own}" for name, (own, default) in times.items() if own != default)


def _pools(policy: Policy) -> Iterator[str]:
    for pool in policy.pools:
        own = ((item.name.replace("_", "-"), getattr(pool, item.name)) for item in fields(pool))
        rules = [f"{name} {said(value)}" for name, value in own if value and name not in ("name", "selector")]
        yield printable("; ".join((f"{pool.name}, {pool.selector}", *rules)))


def _windows(policy: WindowPolicy, now: datetime) -> Iterator[tuple[str, str]]:
    schedule = Schedule.of(policy)
    opening, upcoming = schedule.current(now), schedule.following(now)
    opens = f"opens {_when(upcoming.begin, now)}" if upcoming else ""
    otherwise = "; apply waits for it" if policy.wait and not opening else ""
    if policy.windows:
        still = f"open for another {_far(opening.end, now)}" if opening else ", ".join(filter(None, ("closed", opens)))
        yield "window", f"{printable('; '.join(policy.windows))}: {still}{otherwise}"
    if frozen := schedule.freezing(now):
        # beside windows, the line above says when the next one opens
        state = opens.replace("opens", "frozen; ends", 1) if opens and not policy.windows else "frozen"
        yield "freeze", f"{shortened(frozen)}: {state}{'' if policy.windows else otherwise}"
    elif policy.freezes:
        begins = schedule.next_freeze(now)
        state = f"begins {_when(begins.begin, now)}" if begins else "over"
        yield "freeze", f"{shortened(policy.freezes)}: {state}"


def _when(then: datetime, now: datetime) -> str:
    return f"in {_far(then, now)} ({then.astimezone():%a %Y-%m-%d %H:%M %Z})"


def _far(then: datetime, now: datetime) -> str:
    seconds = (then - now).total_seconds()
    days, rest = divmod(seconds, 86400)
    return f"{int(days)}d{int(rest // 3600):02}h" if days else elapsed(seconds)


def _gates(gates: GatePolicy) -> Iterator[str]:
    if gates.alerts.url:
        yield f"alerts of {printable(gates.alerts.url)}"
    for when, names in (("drain", gates.hooks.before), ("uncordon", gates.hooks.after)):
        if names:
            yield f"before the {when}: {printable(', '.join(names))}, {gates.hooks.timeout} at most"
    if gates.blocking_pods:
        yield f"no pod of {printable('; '.join(gates.blocking_pods))} on the node"


def _sources(policy: Policy) -> Iterator[str]:
    """What may ask for a reboot, where the operator has chosen that."""
    if policy.detect != DEFAULT_SOURCES:
        yield ", ".join(policy.detect) or "nothing"


def _courtesy(courtesy: CourtesyPolicy) -> Iterator[str]:
    delays = (("drain", courtesy.drain_delay), ("reboot", courtesy.reboot_delay))
    if parts := [f"{what} delayed by {delay}" for what, delay in delays if delay]:
        yield ", ".join(parts)
    waiting = f"waited for, {courtesy.wait_for_users} at most" if courtesy.wait_for_users else "not waited for"
    if courtesy.wall or courtesy.wait_for_users:
        yield f"logged-in users are {'told and ' if courtesy.wall else ''}{waiting}"
    labels = {"from the cordon on": courtesy.pre_reboot_node_labels, "at the end": courtesy.post_reboot_node_labels}
    for when, written in labels.items():
        if written:
            yield printable(f"labels {when}: {', '.join(written)}")
    if courtesy.fluo_labels:
        yield "FLUO's labels kept up to date"


def _weakened(policy: Policy) -> Iterator[str]:
    """Limits and addresses stand above already."""
    above = ("--max-unavailable", "alerts.prometheus-url", "--max-failures", "labels.")
    return (sentence for sentence in relaxed_rules(policy) if not sentence.startswith(above))


POOL = "[[pool]]"
# Where the setting has not the name of the field.
_KEYS = {
    "gates.windows.windows": "--window",
    "gates.windows.wait": "gates.wait-window",
    "gates.windows.freezes": "gates.freeze",
    "gates.hooks.before": "gates.before-reboot-annotations",
    "gates.hooks.after": "gates.after-reboot-annotations",
    "gates.hooks.prefix": "gates.hook-prefix",
    "gates.hooks.timeout": "gates.hook-timeout",
    "gates.alerts.url": "alerts.prometheus-url",
    "gates.alerts.pattern": "alerts.filter-regexp",
    "gates.alerts.match_only": "alerts.filter-match-only",
    "gates.blocking_pods": "gates.blocking-pod-selector",
    "gates.timeout": "gates.timeout",
    "gates.ignored_rivals": "--allow",
    "gates.soak": "waves.soak",
    "gates.health_checks": "waves.health-checks",
    "drain.timeout": "--drain-timeout",
    "drain.skip_wait_for_delete_timeout": "drain.skip-wait-for-delete-timeout",
    "include_cordoned": "--allow cordoned",
    "include_held": "--allow held",
    "reboot_idle": "--allow idle",
    "skip_blocked": "--skip blocked",
    "sharing": "waves.sharing",
    "ramp": "waves.ramp",
    "control_plane_selector": "waves.control-plane-selector",
    "prefer_no_schedule_taint": "drain.prefer-no-schedule-taint",
    "exclude_from_load_balancers": "drain.exclude-from-load-balancers",
    "own_reboot_command": "reboot.command",
    "detect": "detect.sources",
    "courtesy.drain_delay": "drain.delay",
    "courtesy.reboot_delay": "reboot.delay",
    "courtesy.wait_for_users": "reboot.wait-for-users",
    "courtesy.wall": "reboot.wall",
    "courtesy.pre_reboot_node_labels": "labels.pre-reboot",
    "courtesy.post_reboot_node_labels": "labels.post-reboot",
    "courtesy.fluo_labels": "labels.fluo",
}
# What a command has without flags: a document that does not speak of the taint is of a version that had none.
_USUAL = Policy(prefer_no_schedule_taint=True)
_POOL_KEYS = ("name", "selector")


def written_rules(policy: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Every rule: its flag and its value; a pool's are one."""
    yield from ((flag, said(value)) for flag, value in _flat(policy))


def changed_rules(policy: Mapping[str, object] | None) -> str:
    """The rules that are not all defaults, as they would be written on a command line."""
    usual = dict(_flat(policy_document(_USUAL)))
    changed = (_as_flag(flag, value) for flag, value in _flat(policy or {}) if usual.get(flag) != value)
    return printable(", ".join(changed)) or "all defaults"


def said(value: object) -> str:
    """A value without the words of any language of programs; empty where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return "" if value is None else str(value)


def _as_flag(flag: str, value: object) -> str:
    if isinstance(value, bool):
        return flag if value else f"no {flag}"
    return f"{flag} {said(value) or 'none'}"


def _flat(rules: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in rules.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif name == "pools" and isinstance(value, list | tuple):
            yield from ((POOL, _pool(pool)) for pool in value if isinstance(pool, dict))
        else:
            yield _KEYS.get(before + name) or f"--{name.replace('_', '-')}", value


def _pool(pool: Mapping[str, object]) -> str:
    """Which nodes, then the rules that are the pool's own."""
    own = {name: value for name, value in pool.items() if name not in _POOL_KEYS and value not in (None, "", [], ())}
    rules = (f"{name.replace('_', '-')} {said(value)}" for name, value in own.items())
    return "; ".join((", ".join(str(pool.get(key, "")) for key in _POOL_KEYS), *rules))
