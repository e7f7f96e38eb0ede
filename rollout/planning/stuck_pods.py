"""What will not pass by itself: pods unready, or on their way out, for longer than a drain would wait for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.planning.budgets import BudgetIndex, Headcount
from rollout.planning.timestamps import seconds_since

_WITHOUT_DEADLINE = 600.0


@dataclass(frozen=True, slots=True)
class StuckPods:
    """The pods that have been unready for long, as the plan's moment shows it.

    The moment is the API server's own clock: without it no pod is unready for long, or overdue. When a pod became
    unready its kubelet has stamped, whose clock may differ a little: that is compared by minutes, never by less than
    `patience` seconds, which is the drain's deadline. `_open` remembers `is_open`, which is asked for every pod.
    """

    now: datetime | None
    patience: float
    headcount: Headcount
    unready: tuple[Pod, ...] = ()
    _open: dict[str, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, pods: Sequence[Pod], index: BudgetIndex, now: datetime | None, drain_timeout: float) -> "StuckPods":
        """StuckPods of these pods under the budgets of that index."""
        patience = drain_timeout or _WITHOUT_DEADLINE
        headcount = Headcount.of(pods, index)
        unready = (pod for pod in pods if pod.unready_since and not pod.finished and not pod.terminating)
        return cls(
            now,
            patience,
            headcount,
            tuple(pod for pod in unready if seconds_since(pod.unready_since, now) > patience),
        )

    def unready_under(self, budget: Budget) -> tuple[Pod, ...]:
        """The budget's pods that will not become ready by waiting."""
        return tuple(pod for pod in self.unready if budget.covers(pod))

    def can_never_allow(self, budget: Budget) -> bool:
        """Whether it allows nothing, however long is waited."""
        return self.headcount.can_never_allow(budget)

    def is_open(self, budget: Budget) -> bool:
        """Whether it allows something now, and by itself always will again."""
        is_open = self._open.get(budget.key)
        if is_open is None:
            is_open = budget.disruptions_allowed > 0 and not self.can_never_allow(budget)
            self._open[budget.key] = is_open
        return is_open

    def is_held_open_by(self, budget: Budget, unready: Sequence[Pod]) -> bool:
        """Whether it may allow something though these of its pods stay unready."""
        return self.headcount.most_healthy(budget) - len(unready) > budget.desired_healthy

    def permits(self, budget: Budget) -> int:
        """How many of its pods may be away at a time: as it is now, or once all are well where it allows none now."""
        well = self.headcount.most_healthy(budget) - budget.desired_healthy
        return budget.disruptions_allowed or (0 if self.can_never_allow(budget) else max(0, well))

    def most_away(self, budget: Budget) -> int:
        """How many of its pods may be away at any time: never fewer than now, nor than once all are well."""
        return max(0, budget.disruptions_allowed, self.headcount.most_healthy(budget) - budget.desired_healthy)

    def stays_pending(self, pod: Pod) -> bool:
        """Whether it has long waited to run on its node. No budget is asked about such a pod, however many cover it."""
        return pod.phase is PodPhase.PENDING and pod in self.unready

    def overdue(self, pod: Pod) -> float:
        """For how many seconds the pod should have been gone; 0 where it is not, or need not be yet."""
        return max(0.0, seconds_since(pod.deleted_at, self.now)) if pod.deleted_at else 0.0
