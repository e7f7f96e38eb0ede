"""A policy as records and journals hold it, in the words that an operator writes: flags, and keys of the settings."""

from collections.abc import Iterator, Mapping

from rollout.model.policy import Policy
from rollout.model.text import printable
from rollout.planning.document import policy_document

POOL = "[[pool]]"
# Where the setting has not the name of the field.
_KEYS = {
    "gates.windows.windows": "--window",
    "gates.windows.wait": "gates.wait-window",
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
# What a command has without settings: a document that does not speak of the taint is of a version that had none.
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
