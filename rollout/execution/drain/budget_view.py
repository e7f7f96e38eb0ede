"""The disruption budgets around a node, live: what may be asked for now without being refused.

A refused eviction costs a request and teaches nothing that the budget's status does not say. So
evictions are held back until the status allows them; what was sent and does not show in the status
yet is counted here.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from rollout.errors import ApiError, ApiNotFoundError
from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.execution.base.live_view import LiveView
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.snapshot import BUDGETS
from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.planning.drain.budgets import BudgetIndex, bypasses

_POLICY, _, _PLURAL = BUDGETS.rpartition("/")
_UNSEEN_SECONDS = 1.0
_FIRST_RETRY = 30.0
_LONGEST_RETRY = 480.0


@dataclass(slots=True)
class _Account:
    """What is known about a budget beyond its status. Times are monotonic seconds.

    Until `until` no more than `expected` is allowed, whatever the status says: it may be older than
    what was sent. A budget that refused stays `closed` in the version it refused in; one that
    refused though its status allows it (its controller lags behind) is tried again rarely.
    """

    expected: int = 0
    until: float = 0.0
    closed: str | None = None
    retry_at: float = 0.0
    retry_pause: float = _FIRST_RETRY


class BudgetView:
    """Budgets as they are now, and how many evictions each allows. Used by one thread."""

    def __init__(self, view: LiveView[Budget]) -> None:
        self._view = view
        self._accounts: dict[str, _Account] = {}
        self._seen: Mapping[str, Budget] = {}
        self._news = -1
        self._index = BudgetIndex.of(())
        self.refresh()

    def refresh(self) -> None:
        """Take in what the watch has brought; what was looked up for pods is forgotten, they may have changed too."""
        if (news := self._view.news) == self._news:
            self._index = replace(self._index, by_uid={})
            return
        self._news, listed = news, self._view.items()
        self._seen = {budget.key: budget for budget in listed}
        self._index = BudgetIndex.of(listed)

    def guarding(self, pod: Pod) -> tuple[Budget, ...]:
        """Return the budgets that will be asked about this pod."""
        return tuple(budget for budget in self._index.covering(pod) if not bypasses(pod, budget))

    def forbidding(self, pod: Pod) -> tuple[Budget, ...]:
        """More than one budget, where a pod that runs is under so many: then no server evicts it, ready or not."""
        covering = self._index.covering(pod)
        exempt = pod.finished or pod.terminating or pod.phase is PodPhase.PENDING
        return covering if len(covering) > 1 and not exempt else ()

    def named(self, key: str) -> Budget | None:
        """Return the budget of that namespace/name."""
        return self._seen.get(key)

    def allowance(self, budget: Budget, now: float) -> int:
        """How many evictions it allows now, as far as can be known without asking."""
        account = self._accounts.setdefault(budget.key, _Account())
        if not budget.disruptions_allowed:
            account.until = 0.0
            return 0
        if account.closed == budget.version:
            return 1 if now >= account.retry_at else 0
        account.closed = None
        if budget.disruptions_allowed <= account.expected:
            account.until = 0.0
        return account.expected if now < account.until else budget.disruptions_allowed

    def sent(self, budget: Budget, now: float) -> None:
        """One eviction is on its way."""
        allowed = self.allowance(budget, now)
        account = self._accounts[budget.key]
        account.expected = max(0, allowed - 1)
        account.until = now + _UNSEEN_SECONDS
        account.retry_at = now + account.retry_pause

    def allowed(self, key: str) -> None:
        """Note that an eviction was granted."""
        if key in self._accounts:
            self._accounts[key].retry_pause = _FIRST_RETRY

    def refused(self, key: str, now: float, retry_after: float | None) -> bool:
        """Wait for another version of a budget that said no; tell whether it is one that can be seen changing."""
        budget = self._seen.get(key)
        if budget is None:
            return False
        account = self._accounts.setdefault(key, _Account())
        account.closed = budget.version
        account.retry_at = now + max(account.retry_pause, retry_after or 0.0)
        account.retry_pause = min(_LONGEST_RETRY, account.retry_pause * 2)
        return True

    def resync(self) -> None:
        """List afresh: a watch that has long said nothing may have lost its server."""
        self._view.resync()


@contextmanager
def watch_budgets(
    cluster: PatientApi, namespaces: Iterable[str], deadline: Deadline, changed: threading.Event
) -> Iterator[BudgetView]:
    """Watch the budgets of these namespaces at once: of the namespace where there is but one, else of the cluster.

    Where budgets may not be seen, or are not served, every eviction is tried.
    """
    concerned = sorted(set(namespaces))
    place = f"{_POLICY}/namespaces/{concerned[0]}/{_PLURAL}" if len(concerned) == 1 else BUDGETS
    # one that is not entered tells of none
    view = LiveView(cluster, place, {}, wire.WireBudget, decode.budget, deadline, changed)
    with ExitStack() as watching:
        try:
            if concerned:
                watching.enter_context(view)
        except ApiError as error:
            if not (error.is_forbidden or isinstance(error, ApiNotFoundError)):
                raise
        yield BudgetView(view)
