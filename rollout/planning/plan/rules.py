"""Find rules that are impossible, or less safe than the defaults.

Anyone can write a plan file.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from rollout.errors import UsageError
from rollout.model.gates import is_matcher
from rollout.model.object_reference import ObjectReference
from rollout.model.policy import DrainPolicy, Policy, Pool
from rollout.model.quantity import Count, Duration
from rollout.model.selectors import check_label_name, parse_selector
from rollout.model.text import is_version, joined
from rollout.planning.eligibility.windows import Window, parse_freeze


def impossible_rules(policy: Policy) -> Iterator[str]:
    """Yield a message for each rule that no settings could have given."""
    for name, value in _values_that_must_not_be_zero(policy):
        if isinstance(value, Count) and value.is_zero:
            yield f"{name} allows no nodes"
        elif isinstance(value, Duration) and not value:
            yield f"{name} allows no time"
    if policy.rollback and not is_version(policy.rollback):
        yield f"{policy.rollback!r} is not a version"
    for text in policy.gates.alerts.matchers:
        if not is_matcher(text):
            yield f"{text!r} is not a label matcher"
    for parse, texts in _texts_to_parse(policy):
        for text in texts:
            try:
                parse(text)
            except UsageError as error:
                yield error.message


def _values_that_must_not_be_zero(policy: Policy) -> Iterator[tuple[str, Count | Duration]]:
    yield "drain.timeout", policy.drain.timeout
    yield "drain.completion.timeout", policy.drain.completion.timeout
    yield "max_failures", policy.max_failures
    rules_and_suffixes: list[tuple[Policy | Pool, str]] = [(policy, "")]
    rules_and_suffixes += [(pool, f" of the pool {pool.name}") for pool in policy.pools]
    for rules, suffix in rules_and_suffixes:
        values = (
            (f"max_unavailable{suffix}", rules.max_unavailable),
            (f"reboot_timeout{suffix}", rules.reboot_timeout),
            (f"ready_timeout{suffix}", rules.ready_timeout),
        )
        yield from ((name, value) for name, value in values if value is not None)
        for number, size in enumerate(rules.ramp or (), start=1):
            yield f"step {number} of the ramp{suffix}", size
    for pool in policy.pools:
        if pool.drain_timeout is not None:
            yield f"drain_timeout of the pool {pool.name}", pool.drain_timeout


def _texts_to_parse(policy: Policy) -> Iterator[tuple[Callable[[str], object], Iterable[str]]]:
    gates = policy.gates
    drain = policy.drain
    pools = policy.pools
    yield parse_selector, (policy.control_plane_selector, drain.pod_selector, *gates.blocking_pods)
    yield parse_selector, [rule.selector for rule in drain.critical]
    yield parse_selector, drain.completion.selectors
    yield ObjectReference.parse, [rule.resource for rule in gates.healthy]
    yield parse_selector, [pool.selector for pool in pools]
    yield Window.parse, gates.windows.windows
    for pool in pools:
        yield Window.parse, pool.window
    yield parse_freeze, gates.windows.freezes
    spread_labels = (policy.spread_by, *(pool.spread_by for pool in pools))
    yield check_label_name, [label for label in spread_labels if label]
    yield check_label_name, (*gates.hooks.before, *gates.hooks.after)
    # A label name that ends in a slash is refused.
    rest_of_name = "name" if gates.hooks.prefix.endswith("/") else "/"
    yield check_label_name, [f"{gates.hooks.prefix}{rest_of_name}"]


_DEFAULT = Policy()


class RelaxedRule(Struct, frozen=True):
    setting: str
    value: str
    effect: str

    @property
    def flag(self) -> str:
        return joined(" ", self.setting, self.value)

    def __str__(self) -> str:
        return f"{self.flag}: {self.effect}"


def relaxed_rules(policy: Policy) -> tuple[RelaxedRule, ...]:
    return (*_relaxed_drain(policy.drain), *_relaxed_selection(policy), *_relaxed_pace(policy))


def _relaxed_drain(drain: DrainPolicy) -> Iterator[RelaxedRule]:
    if drain.disable_eviction:
        effect = "pods are deleted, bypassing disruption budgets"
        yield RelaxedRule("--disable-eviction", "", effect)
    if drain.force:
        yield RelaxedRule("--force", "", "pods that have no controller are evicted")
    if drain.pod_selector:
        effect = "other pods are not evicted; the reboot stops them"
        yield RelaxedRule("--pod-selector", drain.pod_selector, effect)
    overdue = drain.skip_wait_for_delete_timeout
    if overdue:
        effect = "does not wait for pods whose deletion is overdue by more than this many seconds"
        yield RelaxedRule("drain.skip-wait-for-delete-timeout", str(overdue), effect)
    if drain.restarts:
        effect = "Deployments are restarted if their budget never allows an eviction"
        yield RelaxedRule("drain.restart", drain.restart, effect)
    if drain.grace_period is not None:
        effect = "termination grace period in seconds, overriding each pod's own"
        yield RelaxedRule("--grace-period", str(drain.grace_period), effect)


def _relaxed_selection(policy: Policy) -> Iterator[RelaxedRule]:
    if policy.rollback:
        effect = "its nodes are rolled back to their previous version, and it is held"
        yield RelaxedRule("--rollback", policy.rollback, effect)
    if policy.include_cordoned:
        effect = "nodes that were cordoned manually are rebooted, too"
        yield RelaxedRule("--allow", "cordoned", effect)
    if policy.include_held:
        effect = "nodes are rebooted into versions that failed on others"
        yield RelaxedRule("--allow", "held", effect)
    if policy.reboot_idle:
        effect = "nodes with no update staged are rebooted too"
        yield RelaxedRule("--allow", "idle", effect)
    for pool in policy.pools:
        if pool.reboot_idle:
            effect = "its nodes with no update staged are rebooted too"
            yield RelaxedRule("reboot-idle", f"in the pool {pool.name}", effect)
    rivals = policy.gates.ignored_rivals
    if rivals:
        yield RelaxedRule("--allow", ",".join(rivals), "it may reboot nodes at the same time")


def _relaxed_pace(policy: Policy) -> Iterator[RelaxedRule]:
    gates = policy.gates
    alerts = gates.alerts
    for when, names in (("before", gates.hooks.before), ("after", gates.hooks.after)):
        if names:
            effect = "removed from each node, which then waits until they are set again"
            yield RelaxedRule(f"gates.{when}-reboot-annotations", ",".join(names), effect)
    if policy.max_unavailable != _DEFAULT.max_unavailable:
        effect = "maximum number of nodes unavailable at once"
        yield RelaxedRule("--max-unavailable", str(policy.max_unavailable), effect)
    if policy.max_failures != _DEFAULT.max_failures:
        effect = "number of failed nodes after which rollout takes on no more nodes"
        yield RelaxedRule("--max-failures", str(policy.max_failures), effect)
    if policy.settle_timeout < _DEFAULT.settle_timeout:
        effect = "the rollout stops if evicted pods are not available after this time"
        yield RelaxedRule("--settle-timeout", str(policy.settle_timeout), effect)
    if gates.health_checks < _DEFAULT.gates.health_checks:
        effect = "consecutive health checks that must pass for a wave to settle"
        yield RelaxedRule("waves.health-checks", str(gates.health_checks), effect)
    if alerts.url:
        effect = "alerts are read from this Prometheus"
        yield RelaxedRule("alerts.prometheus-url", alerts.url, effect)
    if alerts.url and alerts.matchers:
        effect = "only alerts with these labels count"
        yield RelaxedRule("alerts.matchers", "; ".join(alerts.matchers), effect)
