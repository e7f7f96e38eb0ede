"""Compares a command's settings with the rules of a saved plan or an interrupted rollout."""

from collections.abc import Container, Iterator, Mapping

from msgspec.structs import replace

from rollout.cli.settings.reading import PLANNED, CommandSettings
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import PoolSettings, settings
from rollout.model.policy import Policy, Pool, Selection
from rollout.model.quantity import Duration
from rollout.planning.plan.document import policy_document
from rollout.report.rules import POOL, flat_rules, value_text

# Only these settings have rules with other names.
_RULES_OF_SETTING = {
    "nodes.allow": ("--allow", "--allow cordoned", "--allow held", "--allow idle"),
    "nodes.skip": ("--skip blocked",),
    "gates.calendar": ("gates.freeze",),
}
_RULE_OF_TABLE = {"pool": POOL, "critical": "[[critical]]", "gates_healthy": "[[gates.healthy]]"}


def with_current_timeouts(rules: Policy, current: CommandSettings) -> Policy:
    """Return an interrupted rollout's rules with the time-outs that are set now."""

    def latest(name: str, planned: Duration, now: Duration) -> Duration:
        # Nobody has set a default, so the planned value stays.
        return now if name in current.places else planned

    gates = rules.gates
    hooks = rules.gates.hooks
    reboot = current.reboot
    drain_timeout = latest("drain.timeout", rules.drain.timeout, current.drain.timeout)
    completion = rules.drain.completion
    completion_timeout = latest(
        "drain.wait-for-completion-timeout",
        completion.timeout,
        current.drain.wait_for_completion_timeout,
    )
    gate_timeout = latest("gates.timeout", gates.timeout, current.gates.timeout)
    hook_timeout = latest("gates.hook-timeout", hooks.timeout, current.gates.hook_timeout)
    current_pools = {pool.name: pool for pool in current.pool}
    return replace(
        rules,
        drain=replace(
            rules.drain,
            timeout=drain_timeout,
            completion=replace(completion, timeout=completion_timeout),
        ),
        reboot_timeout=latest("reboot.timeout", rules.reboot_timeout, reboot.timeout),
        ready_timeout=latest("reboot.ready-timeout", rules.ready_timeout, reboot.ready_timeout),
        settle_timeout=latest(
            "waves.settle-timeout", rules.settle_timeout, current.waves.settle_timeout
        ),
        gates=replace(gates, timeout=gate_timeout, hooks=replace(hooks, timeout=hook_timeout)),
        pools=tuple(
            _with_pool_timeouts(pool, current_pools.get(pool.name)) for pool in rules.pools
        ),
    )


def _with_pool_timeouts(pool: Pool, current: PoolSettings | None) -> Pool:
    """`current` is None for a pool that is not in the settings now."""
    if current is None:
        return pool
    return replace(
        pool,
        drain_timeout=current.drain_timeout or pool.drain_timeout,
        reboot_timeout=current.reboot_timeout or pool.reboot_timeout,
        ready_timeout=current.ready_timeout or pool.ready_timeout,
    )


def timeout_notes(before: Policy, after: Policy) -> Iterator[str]:
    """Yield a sentence for each time-out that changed, and each pool that keeps its own."""
    old_rules = _written_rules(before)
    new_rules = _written_rules(after)
    changed = []
    for rule, value in new_rules.items():
        if value != old_rules[rule] and rule != POOL:
            changed.append(rule)
            yield f"{rule} is {value} from now on; it was {old_rules[rule]}"
    for old_pool, pool in zip(before.pools, after.pools, strict=True):
        for name in ("drain_timeout", "reboot_timeout", "ready_timeout"):
            old_value = getattr(old_pool, name)
            value = getattr(pool, name)
            key = name.replace("_", "-")
            if value != old_value:
                was = old_value or "unset"
                yield f"the pool {pool.name} has {key} {value} from now on; it was {was}"
            elif value is not None and f"--{key}" in changed:
                yield f"the pool {pool.name} keeps its own {key}, {value}"


def settings_without_effect(
    current: CommandSettings, rules: Policy, selection: Selection, *, changeable: Container[str]
) -> Iterator[str]:
    """Yield a sentence for each variable and file setting that differs from these rules.

    Settings in `changeable` have an effect. Flags are refused elsewhere.
    """
    # The plan holds the calendar's events, so the file is not read.
    policy_now = policy_of(current.without_calendar())
    current_rules = {**_written_rules(policy_now), **_selection_settings(selection_of(current))}
    planned_rules = {**_written_rules(rules), **_selection_settings(selection)}
    for name, place in current.places.items():
        if name in current.typed or name not in PLANNED or name in changeable:
            continue
        flag = settings()[name].flag
        default_rule = f"--{flag}" if flag else name
        for rule in _RULES_OF_SETTING.get(name, (default_rule,)):
            planned = planned_rules.get(rule)
            # The calendar's events cannot be compared.
            if current_rules.get(rule) != planned or name == "gates.calendar":
                value = "" if name.startswith("alerts.") else f" ({planned or 'none'})"
                yield f"{place} has no effect: {rule} stays as it was planned{value}"
    for table, rule in _RULE_OF_TABLE.items():
        if getattr(current, table) and current_rules.get(rule) != planned_rules.get(rule):
            stays = "stays as planned; only timeouts can change"
            yield f"{current.file} has no effect on {rule}, which {stays}"


def _written_rules(policy: Policy) -> Mapping[str, str]:
    """Return the text of each rule by its flag or key. The text of `POOL` has all pools."""
    rules: dict[str, str] = {}
    for rule, value in flat_rules(policy_document(policy)):
        rules[rule] = "; ".join(filter(None, (rules.get(rule), value_text(value))))
    return rules


def _selection_settings(selection: Selection) -> Mapping[str, str]:
    return {
        "--selector": selection.selector,
        "--node": "; ".join(selection.nodes),
        "--exclude": "; ".join(selection.exclude),
    }
