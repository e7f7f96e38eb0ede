"""Find rules that are impossible, and rules that are less safe than the defaults.

Others can write a plan file or the record in the cluster, and the plan ID does not prove who did.
Flags never give impossible rules, with which nothing would start or every node would fail. Relaxed
rules from such a document are shown before they take effect.
"""

from collections.abc import Callable, Iterable, Iterator

from rollout.errors import UsageError
from rollout.model.gates import is_matcher
from rollout.model.policy import Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import checked_label, parse_selector
from rollout.planning.eligibility.windows import Window, parse_freeze


def impossible_rules(policy: Policy) -> Iterator[str]:
    """Yield what is wrong, in clauses."""
    needed: dict[str, object] = {
        "drain.timeout": policy.drain.timeout,
        "max_failures": policy.max_failures,
    }
    parts: list[tuple[str, Policy | Pool]] = [("", policy)]
    parts += [(f" of the pool {pool.name}", pool) for pool in policy.pools]
    for where, rules in parts:
        for name in ("max_unavailable", "drain_timeout", "reboot_timeout", "ready_timeout"):
            needed[f"{name}{where}"] = getattr(rules, name, None)
        needed |= {
            f"step {place} of the ramp{where}": step
            for place, step in enumerate(rules.ramp or (), start=1)
        }
    for name, value in needed.items():
        if isinstance(value, Count) and value.is_zero:
            yield f"{name} takes no node at all"
        elif isinstance(value, Duration) and not value:
            yield f"{name} leaves no time at all"
    yield from (
        f"{text!r} is not a label matcher"
        for text in policy.gates.alerts.matchers
        if not is_matcher(text)
    )
    for parse, texts in _written(policy):
        for text in texts:
            try:
                parse(text)
            except UsageError as error:
                yield error.message


def _written(policy: Policy) -> Iterator[tuple[Callable[[str], object], Iterable[str]]]:
    """Yield parsers, which raise `UsageError`, with the texts that they must accept."""
    gates = policy.gates
    drain = policy.drain
    pools = policy.pools
    critical = (rule.selector for rule in drain.critical)
    selectors = (policy.control_plane_selector, drain.pod_selector, *gates.blocking_pods, *critical)
    yield parse_selector, (*selectors, *(pool.selector for pool in pools))
    yield (
        Window.parse,
        (*gates.windows.windows, *(window for pool in pools for window in pool.window)),
    )
    yield parse_freeze, gates.windows.freezes
    spread = filter(None, (policy.spread_by, *(pool.spread_by for pool in pools)))
    # A prefix must end in a slash.
    prefixed = (
        f"{gates.hooks.prefix}name"
        if gates.hooks.prefix.endswith("/")
        else f"{gates.hooks.prefix}/"
    )
    yield checked_label, (*spread, *gates.hooks.before, *gates.hooks.after, prefixed)


_DEFAULT = Policy()


def relaxed_rules(policy: Policy) -> tuple[str, ...]:
    """Return a sentence for each rule that is less strict than its default."""
    drain = policy.drain
    gates = policy.gates
    overdue = drain.skip_wait_for_delete_timeout
    grace = drain.grace_period
    hooks = gates.hooks
    alerts = gates.alerts
    sentences: tuple[tuple[object, str], ...] = (
        (
            drain.disable_eviction,
            "--disable-eviction: pods are deleted, whatever disruption budgets say",
        ),
        (drain.force, "--force: pods that nothing starts again are evicted"),
        (
            drain.pod_selector,
            (
                f"--pod-selector {drain.pod_selector}: other pods are not evicted, the reboot ends"
                " them"
            ),
        ),
        (
            overdue,
            (
                f"drain.skip-wait-for-delete-timeout {overdue}: pods overdue by more seconds are"
                " not waited for"
            ),
        ),
        (
            grace is not None,
            f"--grace-period {grace}: seconds that a pod has to end, whatever it asks for",
        ),
        (
            policy.include_cordoned,
            "--allow cordoned: nodes that an operator cordoned are rebooted too",
        ),
        (
            policy.include_held,
            "--allow held: nodes are rebooted into versions that failed on others",
        ),
        (policy.reboot_idle, "--allow idle: nodes with no update staged are rebooted too"),
        *(
            (
                pool.reboot_idle,
                (
                    f"reboot-idle in the pool {pool.name}: its nodes with no update staged are"
                    " rebooted too"
                ),
            )
            for pool in policy.pools
        ),
        (
            gates.ignored_rivals,
            f"--allow {','.join(gates.ignored_rivals)}: it may reboot nodes at the same time",
        ),
        (hooks.before, _writes("before", hooks.before)),
        (hooks.after, _writes("after", hooks.after)),
        (
            policy.max_unavailable != _DEFAULT.max_unavailable,
            f"--max-unavailable {policy.max_unavailable}: maximum number of nodes down at once",
        ),
        (
            policy.max_failures != _DEFAULT.max_failures,
            f"--max-failures {policy.max_failures}: failed nodes before no further one is begun",
        ),
        (
            policy.settle_timeout < _DEFAULT.settle_timeout,
            f"--settle-timeout {policy.settle_timeout}: moved pods are waited for no longer",
        ),
        (
            gates.health_checks < _DEFAULT.gates.health_checks,
            (
                f"waves.health-checks {gates.health_checks}: good checks in a row that make a wave"
                " settled"
            ),
        ),
        (alerts.url, f"alerts.prometheus-url {alerts.url}: this machine asks there for alerts"),
        (
            alerts.url and alerts.matchers,
            f"alerts.matchers {'; '.join(alerts.matchers)}: only alerts with these labels count",
        ),
    )
    return tuple(sentence for is_relaxed, sentence in sentences if is_relaxed)


def _writes(when: str, names: tuple[str, ...]) -> str:
    return (
        f"gates.{when}-reboot-annotations {','.join(names)}: they are taken from each node, and"
        " waited for"
    )
