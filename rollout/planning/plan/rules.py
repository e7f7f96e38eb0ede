"""Rules that are not what they seem: those that no flag takes, and those that give up what the defaults keep safe.

A document with an impossible rule is none of ours, however well it is sealed: with some nothing would ever begin, with
others each node that is begun would fail at once. What is relaxed is shown before rules run that were not given just
now: a plan file and the record on the cluster can be written by others than whoever runs them, and their digest tells
slips from the rules that were meant, not a forger.
"""

from collections.abc import Callable, Iterator

from rollout.errors import UsageError
from rollout.model.gates import AlertPolicy, GatePolicy, is_matcher
from rollout.model.policy import DrainPolicy, Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.planning.eligibility.selector import checked_label, parse_selector
from rollout.planning.eligibility.windows import Window, parse_freeze


def impossible_rules(policy: Policy) -> Iterator[str]:
    """Yield what is wrong with each, in half a sentence."""
    needed: dict[str, object] = {"drain.timeout": policy.drain.timeout, "max_failures": policy.max_failures}
    parts: list[tuple[str, Policy | Pool]] = [("", policy)]
    parts += [(f" of the pool {pool.name}", pool) for pool in policy.pools]
    for where, rules in parts:
        for name in ("max_unavailable", "drain_timeout", "reboot_timeout", "ready_timeout"):
            needed[f"{name}{where}"] = getattr(rules, name, None)
        needed |= {f"step {place} of the ramp{where}": step for place, step in enumerate(rules.ramp or (), start=1)}
    for name, value in needed.items():
        if isinstance(value, Count) and value.is_zero:
            yield f"{name} takes no node at all"
        elif isinstance(value, Duration) and not value:
            yield f"{name} leaves no time at all"
    yield from _unreadable(policy)
    yield from (f"{text!r} is not a label matcher" for text in policy.gates.alerts.matchers if not is_matcher(text))


def _unreadable(policy: Policy) -> Iterator[str]:
    """Yield what is written in a form of its own, and is not of that form."""
    gates = policy.gates
    spread = [label for label in (policy.spread_by, *(pool.spread_by for pool in policy.pools)) if label]
    yield from _refused(
        parse_selector, (policy.control_plane_selector, policy.drain.pod_selector, *gates.blocking_pods)
    )
    yield from _refused(parse_selector, tuple(rule.selector for rule in policy.drain.critical))
    own = (window for pool in policy.pools for window in pool.window)
    yield from _refused(Window.parse, (*gates.windows.windows, *own))
    yield from _refused(parse_freeze, gates.windows.freezes)
    yield from _refused(checked_label, (*spread, *gates.hooks.before, *gates.hooks.after, _label_of(gates)))


def _label_of(gates: GatePolicy) -> str:
    """Return a label with the prefix of the checks, which ends in a slash."""
    prefix = gates.hooks.prefix
    return f"{prefix}name" if prefix.endswith("/") else f"{prefix}/"


def _refused(parse: Callable[..., object], written: tuple[object, ...]) -> Iterator[str]:
    for text in written:
        try:
            parse(text)
        except UsageError as error:
            yield error.message


_DEFAULT = Policy()


def relaxed_rules(policy: Policy) -> tuple[str, ...]:
    """Return a sentence each, beginning with the flag; none for the defaults, and for what is stricter."""
    of_nodes = (*_of_nodes(policy), *_on_nodes(policy))
    return (*_of_drain(policy.drain), *of_nodes, *_of_limits(policy), *_of_alerts(policy.gates.alerts))


def _of_drain(drain: DrainPolicy) -> Iterator[str]:
    if drain.disable_eviction:
        yield "--disable-eviction: pods are deleted, whatever disruption budgets say"
    if drain.force:
        yield "--force: pods that nothing starts again are evicted"
    if drain.pod_selector:
        yield f"--pod-selector {drain.pod_selector}: other pods are not evicted, the reboot ends them"
    if drain.skip_wait_for_delete_timeout:
        seconds = drain.skip_wait_for_delete_timeout
        yield f"drain.skip-wait-for-delete-timeout {seconds}: pods overdue by more seconds are not waited for"
    if drain.grace_period is not None:
        yield f"--grace-period {drain.grace_period}: seconds that a pod has to end, whatever it asks for"


def _of_nodes(policy: Policy) -> Iterator[str]:
    if policy.include_cordoned:
        yield "--allow cordoned: nodes that an operator cordoned are rebooted too"
    if policy.include_held:
        yield "--allow held: nodes are rebooted into versions that failed on others"
    if policy.reboot_idle:
        yield "--allow idle: nodes with no update staged are rebooted too"
    for pool in policy.pools:
        if pool.reboot_idle:
            yield f"reboot-idle in the pool {pool.name}: its nodes with no update staged are rebooted too"
    if policy.gates.ignored_rivals:
        yield f"--allow {','.join(policy.gates.ignored_rivals)}: it may reboot nodes at the same time"


def _on_nodes(policy: Policy) -> Iterator[str]:
    """Yield what is written on Nodes by names that the rules choose."""
    for when in ("before", "after"):
        if checks := getattr(policy.gates.hooks, when):
            names = ",".join(checks)
            yield f"gates.{when}-reboot-annotations {names}: they are taken from each node, and waited for"


def _of_limits(policy: Policy) -> Iterator[str]:
    if policy.max_unavailable != _DEFAULT.max_unavailable:
        yield f"--max-unavailable {policy.max_unavailable}: nodes away at once"
    if policy.max_failures != _DEFAULT.max_failures:
        yield f"--max-failures {policy.max_failures}: failed nodes before no further one is begun"
    if policy.settle_timeout < _DEFAULT.settle_timeout:
        yield f"--settle-timeout {policy.settle_timeout}: moved pods are waited for no longer"
    if policy.gates.health_checks < GatePolicy().health_checks:
        yield f"waves.health-checks {policy.gates.health_checks}: good checks in a row that make a wave settled"


def _of_alerts(alerts: AlertPolicy) -> Iterator[str]:
    if not alerts.url:
        return
    yield f"alerts.prometheus-url {alerts.url}: this machine asks there for alerts"
    if alerts.matchers:
        yield f"alerts.matchers {'; '.join(alerts.matchers)}: only alerts with these labels count"
