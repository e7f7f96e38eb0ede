"""Rules that no flag takes: a document with one of them is none of ours, however well it is sealed.

With some nothing would ever begin, with others each node that is begun would fail at once.
"""

import re
from collections.abc import Callable, Iterator

from rollout.errors import UsageError
from rollout.model.gates import GatePolicy
from rollout.model.policy import Policy
from rollout.model.quantity import Count, Duration
from rollout.planning.node_labels import node_labels
from rollout.planning.selector import checked_label, parse_selector
from rollout.planning.windows import Window


def impossible_rules(policy: Policy) -> Iterator[str]:
    """What is wrong with each, in half a sentence."""
    yield from (f"{name} leaves no time at all" for name, time in _times(policy) if time is not None and not time)
    yield from (
        f"{name} takes no node at all" for name, count in _counts(policy) if count is not None and count.is_zero
    )
    yield from _unreadable(policy)
    if not _is_pattern(policy.gates.alerts.pattern):
        yield f"{policy.gates.alerts.pattern!r} is not a regular expression"


def _times(policy: Policy) -> Iterator[tuple[str, Duration | None]]:
    """Such as have to be some."""
    yield "drain.timeout", policy.drain.timeout
    yield "reboot_timeout", policy.reboot_timeout
    yield "ready_timeout", policy.ready_timeout
    for pool in policy.pools:
        yield f"drain_timeout of the pool {pool.name}", pool.drain_timeout
        yield f"reboot_timeout of the pool {pool.name}", pool.reboot_timeout
        yield f"ready_timeout of the pool {pool.name}", pool.ready_timeout


def _counts(policy: Policy) -> Iterator[tuple[str, Count | None]]:
    """Such as have to let something begin."""
    yield "max_unavailable", policy.max_unavailable
    yield "max_failures", policy.max_failures
    yield from (("a step of the ramp", step) for step in policy.ramp)
    for pool in policy.pools:
        yield f"max_unavailable of the pool {pool.name}", pool.max_unavailable
        yield from ((f"a step of the ramp of the pool {pool.name}", step) for step in pool.ramp or ())


def _unreadable(policy: Policy) -> Iterator[str]:
    """What is written in a form of its own, and is not of that form."""
    gates, labels = policy.gates, policy.courtesy
    spread = [label for label in (policy.spread_by, *(pool.spread_by for pool in policy.pools)) if label]
    yield from _refused(
        parse_selector, (policy.control_plane_selector, policy.drain.pod_selector, *gates.blocking_pods)
    )
    yield from _refused(node_labels, (labels.pre_reboot_node_labels, labels.post_reboot_node_labels))
    yield from _refused(Window.parse, gates.windows.windows)
    yield from _refused(checked_label, (*spread, *gates.hooks.before, *gates.hooks.after, _label_of(gates)))


def _label_of(gates: GatePolicy) -> str:
    """A label with the prefix of the checks, which ends in a slash."""
    prefix = gates.hooks.prefix
    return f"{prefix}name" if prefix.endswith("/") else f"{prefix}/"


def _refused(parse: Callable[..., object], written: tuple[object, ...]) -> Iterator[str]:
    for text in written:
        try:
            parse(text)
        except UsageError as error:
            yield error.message


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
