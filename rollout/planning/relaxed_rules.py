"""What a policy gives up of what the defaults keep safe: shown before rules run that were not given just now.

A plan file and the record on the cluster can be written by others than whoever runs them. Their digest tells slips from
the rules that were meant, not a forger.
"""

from collections.abc import Iterator

from rollout.model.gates import AlertPolicy, GatePolicy
from rollout.model.policy import DrainPolicy, Policy

_DEFAULT = Policy()


def relaxed_rules(policy: Policy) -> tuple[str, ...]:
    """A sentence each, beginning with the setting; none for the defaults, and for what is stricter."""
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
    """What is written on Nodes by names that the rules choose."""
    for when in ("pre", "post"):
        if labels := getattr(policy.courtesy, f"{when}_reboot_node_labels"):
            yield f"labels.{when}-reboot {','.join(labels)}: each node gets them"
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
    if alerts.match_only and alerts.pattern:
        yield f"alerts.filter-match-only: only alerts that match {alerts.pattern} count"
    elif alerts.pattern:
        yield f"alerts.filter-regexp {alerts.pattern}: alerts that match do not count"
