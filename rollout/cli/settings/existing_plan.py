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


def with_current_timeouts(planned: Policy, current: CommandSettings) -> Policy:
    """Use the time-outs that are set now, but no defaults."""

    def choose(name: str, planned_timeout: Duration, current_timeout: Duration) -> Duration:
        is_set = name in current.places
        return current_timeout if is_set else planned_timeout

    gates = planned.gates
    hooks = planned.gates.hooks
    reboot = current.reboot
    drain_timeout = choose("drain.timeout", planned.drain.timeout, current.drain.timeout)
    completion = planned.drain.completion
    completion_timeout = choose(
        "drain.wait-for-completion-timeout",
        completion.timeout,
        current.drain.wait_for_completion_timeout,
    )
    gate_timeout = choose("gates.timeout", gates.timeout, current.gates.timeout)
    hook_timeout = choose("gates.hook-timeout", hooks.timeout, current.gates.hook_timeout)
    current_pools = {pool.name: pool for pool in current.pool}
    return replace(
        planned,
        drain=replace(
            planned.drain,
            timeout=drain_timeout,
            completion=replace(completion, timeout=completion_timeout),
        ),
        reboot_timeout=choose("reboot.timeout", planned.reboot_timeout, reboot.timeout),
        ready_timeout=choose("reboot.ready-timeout", planned.ready_timeout, reboot.ready_timeout),
        settle_timeout=choose(
            "waves.settle-timeout", planned.settle_timeout, current.waves.settle_timeout
        ),
        gates=replace(gates, timeout=gate_timeout, hooks=replace(hooks, timeout=hook_timeout)),
        pools=tuple(
            _with_pool_timeouts(pool, current_pools.get(pool.name)) for pool in planned.pools
        ),
    )


def _with_pool_timeouts(pool: Pool, current: PoolSettings | None) -> Pool:
    """`current` is None for a pool that the settings do not have."""
    if current is None:
        return pool
    return replace(
        pool,
        drain_timeout=current.drain_timeout or pool.drain_timeout,
        reboot_timeout=current.reboot_timeout or pool.reboot_timeout,
        ready_timeout=current.ready_timeout or pool.ready_timeout,
    )


def timeout_notes(before: Policy, after: Policy) -> Iterator[str]:
    """Yield sentences on changed timeouts."""
    old_rules = _written_rules(before)
    new_rules = _written_rules(after)
    changed_rules = []
    for rule, value in new_rules.items():
        if value != old_rules[rule] and rule != POOL:
            changed_rules.append(rule)
            yield f"{rule} is {value} from now on; it was {old_rules[rule]}"
    for old_pool, pool in zip(before.pools, after.pools, strict=True):
        for name in ("drain_timeout", "reboot_timeout", "ready_timeout"):
            old_value = getattr(old_pool, name)
            value = getattr(pool, name)
            key = name.replace("_", "-")
            if value != old_value:
                was = old_value or "unset"
                yield f"the pool {pool.name} has {key} {value} from now on; it was {was}"
            elif value is not None and f"--{key}" in changed_rules:
                yield f"the pool {pool.name} keeps its own {key}, {value}"


def settings_without_effect(
    current: CommandSettings, planned: Policy, selection: Selection, *, changeable: Container[str]
) -> Iterator[str]:
    """Yield sentences on settings without an effect, except flags and `changeable` settings."""
    # The plan holds the calendar's events.
    policy_now = policy_of(current.without_calendar())
    current_rules = {**_written_rules(policy_now), **_selection_settings(selection_of(current))}
    planned_rules = {**_written_rules(planned), **_selection_settings(selection)}
    for name, place in current.places.items():
        is_fixed_by_plan = name in PLANNED and name not in changeable
        if name in current.typed or not is_fixed_by_plan:
            continue
        flag = settings()[name].flag
        default_rule = f"--{flag}" if flag else name
        for rule in _RULES_OF_SETTING.get(name, (default_rule,)):
            planned_text = planned_rules.get(rule)
            is_same = current_rules.get(rule) == planned_text
            # A calendar cannot be compared: its file was not read.
            if not is_same or name == "gates.calendar":
                value = "" if name.startswith("alerts.") else f" ({planned_text or 'none'})"
                yield f"{place} has no effect: {rule} stays as it was planned{value}"
    for table, rule in _RULE_OF_TABLE.items():
        if getattr(current, table) and current_rules.get(rule) != planned_rules.get(rule):
            stays = "stays as planned; only timeouts can change"
            yield f"{current.file} has no effect on {rule}, which {stays}"


def _written_rules(policy: Policy) -> Mapping[str, str]:
    """Return each rule's text by flag or key. `POOL` has all pools."""
    texts: dict[str, list[str]] = {}
    # A rule may have several values.
    for rule, value in flat_rules(policy_document(policy)):
        texts.setdefault(rule, []).append(value_text(value))
    return {rule: "; ".join(text for text in parts if text) for rule, parts in texts.items()}


def _selection_settings(selection: Selection) -> Mapping[str, str]:
    return {
        "--selector": selection.selector,
        "--node": "; ".join(selection.nodes),
        "--exclude": "; ".join(selection.exclude),
    }
