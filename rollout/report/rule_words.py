"""A policy as records and journals hold it, in the words that an operator writes: the flags' own."""

from collections.abc import Iterator, Mapping

from rollout.model.policy import Policy
from rollout.model.text import printable
from rollout.planning.document import policy_document

POOL = "[[pool]]"
# Where the flag has not the name of the field.
_FLAGS = {
    "drain.timeout": "drain-timeout",
    "gates.windows.windows": "window",
    "gates.windows.fit": "window-fit",
    "gates.windows.wait": "wait-window",
    "gates.hooks.before": "before-reboot-annotations",
    "gates.hooks.after": "after-reboot-annotations",
    "gates.hooks.prefix": "hook-prefix",
    "gates.hooks.timeout": "hook-timeout",
    "gates.alerts.url": "prometheus-url",
    "gates.alerts.pattern": "alert-filter-regexp",
    "gates.alerts.match_only": "alert-filter-match-only",
    "gates.alerts.firing_only": "alert-firing-only",
    "gates.blocking_pods": "blocking-pod-selector",
    "gates.timeout": "gate-timeout",
    "gates.ignored_rivals": "ignore-rival",
}
# The plan has the digests of commands, not the commands.
_DIGESTS = ("reboot_command", "detect_command")
_SHOWN = 12
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
        return flag if value else flag.replace("--", "--no-", 1)
    return f"{flag} {said(value) or 'none'}"


def _flat(rules: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in rules.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        elif name == "pools" and isinstance(value, list | tuple):
            yield from ((POOL, _pool(pool)) for pool in value if isinstance(pool, dict))
        else:
            shown = f"(digest {str(value)[:_SHOWN]})" if name in _DIGESTS and value else value
            yield f"--{_FLAGS.get(before + name) or name.replace('_', '-')}", shown


def _pool(pool: Mapping[str, object]) -> str:
    """Which nodes, then the rules that are the pool's own."""
    own = {name: value for name, value in pool.items() if name not in _POOL_KEYS and value not in (None, "", [], ())}
    rules = (f"{name.replace('_', '-')} {said(value)}" for name, value in own.items())
    return "; ".join((", ".join(str(pool.get(key, "")) for key in _POOL_KEYS), *rules))
