"""Pods that an operator calls critical: an eviction waits until enough others of their rule are Ready.

No API server keeps these rules. So what each of them covers is listed afresh right before an eviction, and what the
drains of one process have asked for is counted as gone before the server shows it.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from rollout.gather.cluster.snapshot import read_pods
from rollout.model.cluster import Budget, Pod
from rollout.model.policy import Critical
from rollout.planning.drain.budgets import bypasses, critical_budget
from rollout.planning.eligibility.selector import parse_selector
from rollout.ports import ClusterApi

LOOK_AGAIN = 2.0
"""Seconds for which a rule that keeps its pods is not looked at again, whoever asks."""

# Longer than any request lasts: what was asked for then is carried out, and seen, or never will be.
_UNSEEN = 120.0


@dataclass(slots=True)
class CriticalPods:
    """What the drains of one process have asked for, by UID, and the rules that let nothing go. For many threads.

    Times are monotonic seconds of the clock: when it was asked for, and when it was looked at.
    """

    _asked: dict[str, float] = field(default_factory=dict)
    _shut: dict[Critical, tuple[Budget, float]] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, api: ClusterApi, pod: Pod, rules: Sequence[Critical], now: float) -> Budget | None:
        """Note that the pod goes now; or return the rule that keeps it, as a budget. `ApiError`."""
        covering = [rule for rule in rules if _covers(rule, pod)]
        for rule in covering:
            shut, since = self._shut.get(rule, (None, 0.0))
            if shut is not None and now - since < LOOK_AGAIN and not bypasses(pod, shut):
                return shut
        listed = [(rule, read_pods(api, rule.namespace, rule.selector)) for rule in covering]
        with self._turn:
            leaving = {uid for uid, since in self._asked.items() if uid != pod.uid and now - since < _UNSEEN}
            for rule, pods in listed:
                budget = critical_budget(rule, pods, leaving)
                if not bypasses(pod, budget) and not budget.disruptions_allowed:
                    self._shut[rule] = budget, now
                    return budget
            if covering:
                self._asked[pod.uid] = now
        return None

    def release(self, pod: Pod) -> None:
        """Note that the pod stays after all."""
        with self._turn:
            self._asked.pop(pod.uid, None)


def _covers(rule: Critical, pod: Pod) -> bool:
    return pod.namespace == rule.namespace and parse_selector(rule.selector).matches(pod.labels)
