from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec.structs import replace

from rollout.model.gates import WindowPolicy
from rollout.model.policy import Policy
from rollout.model.text import joined, printable, shortened
from rollout.model.timestamps import elapsed
from rollout.planning.eligibility.windows import Schedule
from rollout.planning.plan.document import policy_document
from rollout.planning.plan.rules import relaxed_rules

_IN_OTHER_LINES = ("--max-unavailable", "alerts.prometheus-url", "--max-failures", "--rollback")


def rule_lines(policy: Policy, now: datetime) -> Iterator[str]:
    # Windows and freezes have their own lines.
    without_times = replace(policy, gates=replace(policy.gates, windows=WindowPolicy()))
    changed = changed_rules(policy_document(without_times))
    if changed:
        yield f"Rules: {changed}"
    yield from _window_lines(policy.gates.windows, now)
    for pool in policy.pools:
        if pool.window:
            yield from _window_lines(WindowPolicy(pool.window), now, pool.name)
    for rule in relaxed_rules(policy):
        if rule.setting not in _IN_OTHER_LINES:
            yield f"! {printable(str(rule))}"


def _window_lines(policy: WindowPolicy, now: datetime, pool: str = "") -> Iterator[str]:
    schedule = Schedule.of(policy)
    is_open = schedule.current_opening(now) is not None
    wait_clause = "; apply waits for it" if policy.wait and not is_open else ""
    if policy.windows:
        subject = f"Window of pool {pool}" if pool else "Window"
        windows = printable("; ".join(policy.windows))
        yield f"{subject}: {windows}: {_window_state(schedule, now)}{wait_clause}"
    active_freezes = schedule.active_freezes(now)
    if active_freezes and policy.windows:
        # The windows' line already says when the next one opens.
        yield f"Freeze: {shortened(active_freezes)}: frozen"
    elif active_freezes:
        end = _next_opening_text(schedule, now)
        state = f"frozen; ends {end}" if end else "frozen"
        yield f"Freeze: {shortened(active_freezes)}: {state}{wait_clause}"
    elif policy.freezes:
        yield f"Freeze: {shortened(policy.freezes)}: {_coming_freeze_state(schedule, now)}"


def _window_state(schedule: Schedule, now: datetime) -> str:
    current_opening = schedule.current_opening(now)
    if current_opening:
        return f"open for another {_time_until(current_opening.end, now)}"
    opens = _next_opening_text(schedule, now)
    return f"closed, opens {opens}" if opens else "closed"


def _coming_freeze_state(schedule: Schedule, now: datetime) -> str:
    freeze = schedule.next_freeze(now)
    return f"starts {_relative_and_exact(freeze.begin, schedule, now)}" if freeze else "over"


def _next_opening_text(schedule: Schedule, now: datetime) -> str:
    opening = schedule.next_opening(now)
    return _relative_and_exact(opening.begin, schedule, now) if opening else ""


def _relative_and_exact(moment: datetime, schedule: Schedule, now: datetime) -> str:
    return f"in {_time_until(moment, now)} ({schedule.written_time(moment)})"


def _time_until(then: datetime, now: datetime) -> str:
    time_left = then - now
    if time_left.days == 0:
        return elapsed(time_left.total_seconds())
    return f"{time_left.days}d{time_left.seconds // 3600:02}h"


POOL = "[[pool]]"
_TABLE_HEADERS = {
    "pools": POOL,
    "drain.critical": "[[critical]]",
    "gates.healthy": "[[gates.healthy]]",
}
# By the path in the policy: rules not written as `--` and their name.
_KEY_OR_FLAG = {
    **_TABLE_HEADERS,
    "gates.windows.windows": "--window",
    "gates.windows.wait": "gates.wait-window",
    "gates.windows.freezes": "gates.freeze",
    "gates.hooks.before": "gates.before-reboot-annotations",
    "gates.hooks.after": "gates.after-reboot-annotations",
    "gates.hooks.prefix": "gates.hook-prefix",
    "gates.hooks.timeout": "gates.hook-timeout",
    "gates.alerts.url": "alerts.prometheus-url",
    "gates.alerts.matchers": "alerts.matchers",
    "gates.blocking_pods": "gates.blocking-pod-selector",
    "gates.timeout": "gates.timeout",
    "gates.ignored_rivals": "--allow",
    "gates.soak": "waves.soak",
    "gates.health_checks": "waves.health-checks",
    "drain.timeout": "--drain-timeout",
    "drain.skip_wait_for_delete_timeout": "drain.skip-wait-for-delete-timeout",
    "drain.completion.selectors": "drain.wait-for-completion",
    "drain.completion.timeout": "drain.wait-for-completion-timeout",
    "drain.completion.fallback": "drain.wait-for-completion-fallback",
    "drain.restart": "drain.restart",
    "include_cordoned": "--allow cordoned",
    "include_held": "--allow held",
    "reboot_idle": "--allow idle",
    "skip_blocked": "--skip blocked",
    "ramp": "waves.ramp",
    "control_plane_selector": "waves.control-plane-selector",
    "prefer_no_schedule_taint": "drain.prefer-no-schedule-taint",
    "exclude_from_load_balancers": "drain.exclude-from-load-balancers",
    "own_reboot_command": "reboot.command",
    "detect": "detect.sources",
    "courtesy.drain_delay": "drain.delay",
    "courtesy.reboot_delay": "reboot.delay",
    "courtesy.fluo_labels": "labels.fluo",
    "courtesy.conditions": "labels.conditions",
}
# Older versions did not set the taint.
_DEFAULT_POLICY = Policy(prefer_no_schedule_taint=True)
_SUBJECT_KEYS = ("name", "namespace", "selector", "resource")


def changed_rules(policy: Mapping[str, object]) -> str:
    defaults = dict(_flat_values(policy_document(_DEFAULT_POLICY)))
    changed = []
    unknown = []
    for path, value in _flat_values(policy):
        if path not in defaults and path not in _TABLE_HEADERS:
            unknown.append(f"{path} {_value_or_none(value)}")
        # Earlier documents have counts as text.
        elif str(defaults.get(path)) != str(value):
            changed.append(_as_flag(_key_or_flag(path), value))
    unknown_rules = f"unknown to this version of rollout: {', '.join(unknown)}" if unknown else ""
    return printable(joined("; ", ", ".join(changed), unknown_rules))


def value_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return "" if value is None else str(value)


def _as_flag(flag: str, value: object) -> str:
    if value is False:
        return f"--no-{flag.removeprefix('--')}" if flag.startswith("--") else f"{flag}=false"
    if value is True:
        return flag
    return f"{flag} {_value_or_none(value)}"


def _value_or_none(value: object) -> str:
    return value_text(value) or "none"


def flat_rules(policy: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield `--canary`, 2 and, for a whole table, `[[pool]]`, `db, role=db`.

    `policy` has only rules that this version knows.
    """
    for path, value in _flat_values(policy):
        yield _key_or_flag(path), value


def _key_or_flag(path: str) -> str:
    name = path.rpartition(".")[-1]
    return _KEY_OR_FLAG.get(path, f"--{name.replace('_', '-')}")


def _flat_values(rules: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield `gates.windows.wait`, True and, for a whole table, `pools`, `db, role=db`."""
    for name, value in rules.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flat_values(value, f"{path}.")
        elif path in _TABLE_HEADERS and isinstance(value, list | tuple):
            for table in value:
                if isinstance(table, dict):
                    yield path, _table_text(table)
        else:
            yield path, value


def _table_text(table: Mapping[str, object]) -> str:
    parts = [", ".join(str(table[key]) for key in _SUBJECT_KEYS if key in table)]
    for name, value in table.items():
        is_empty = value in (None, "", [], ())
        if name not in _SUBJECT_KEYS and not is_empty:
            parts.append(f"{name.replace('_', '-')} {value_text(value)}")
    return "; ".join(parts)
