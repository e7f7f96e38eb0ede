"""A live view of the budgets around a node, so that no eviction is refused."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rollout.errors import ApiError, ApiNotFoundError
from rollout.execution.base.deadline import Deadline, PatientApi
from rollout.execution.base.live_view import LiveView
from rollout.gather.cluster import decode, wire
from rollout.gather.cluster.snapshot import BUDGETS
from rollout.model.cluster import Budget, Pod, PodPhase
from rollout.planning.drain.budgets import BudgetIndex, bypasses_budget

_POLICY, _, _PLURAL = BUDGETS.rpartition("/")
# How long a budget's status may lag behind an eviction.
_LAG_SECONDS = 1.0
_FIRST_RETRY = 30.0
_LONGEST_RETRY = 480.0


@dataclass(slots=True)
class _Account:
    """What is known beyond a budget's status; times are monotonic seconds."""

    # Used instead of the status until that counts the evictions sent, or until `status_lags_until`.
    allowance_after_sent: int = 0
    status_lags_until: float = 0.0
    # The resourceVersion when the last eviction was sent. It may change before the answer.
    version_when_sent: str | None = None
    # The resourceVersion whose status allowed what the API server refused.
    untrusted_version: str | None = None
    retry_at: float = 0.0
    retry_pause: float = _FIRST_RETRY


class BudgetView:
    """The budgets at the last `refresh`, and how many evictions each allows since.

    If the API server refuses what a status allows, one eviction at a time is tried until the status
    changes.
    """

    def __init__(self, view: LiveView[Budget]) -> None:
        self._view = view
        self._accounts: dict[str, _Account] = {}
        self._by_key: Mapping[str, Budget] = {}
        self._generation = -1
        self._index = BudgetIndex.of(())
        self.refresh()

    def refresh(self) -> None:
        generation = self._view.generation
        if generation == self._generation:
            return
        self._generation = generation
        budgets = self._view.items()
        self._by_key = {budget.key: budget for budget in budgets}
        self._index = BudgetIndex.of(budgets)

    def budgets_of(self, pod: Pod) -> tuple[Budget, ...]:
        return tuple(
            budget for budget in self._index.covering(pod) if not bypasses_budget(pod, budget)
        )

    def conflicting_budgets(self, pod: Pod) -> tuple[Budget, ...]:
        """No API server evicts a running pod that has several budgets."""
        is_running = not (pod.finished or pod.terminating or pod.phase is PodPhase.PENDING)
        if not is_running:
            return ()
        covering = self._index.covering(pod)
        return covering if len(covering) > 1 else ()

    def budget(self, key: str) -> Budget | None:
        return self._by_key.get(key)

    def allowance(self, budget: Budget, now: float) -> int:
        account = self._account(budget.key)
        if budget.disruptions_allowed == 0:
            # The status counts what was sent.
            account.status_lags_until = 0.0
            return 0
        if account.untrusted_version == budget.resource_version:
            return 1 if now >= account.retry_at else 0
        account.untrusted_version = None
        counts_what_was_sent = budget.disruptions_allowed <= account.allowance_after_sent
        if counts_what_was_sent:
            account.status_lags_until = 0.0
        if now < account.status_lags_until:
            return account.allowance_after_sent
        return budget.disruptions_allowed

    def note_sent(self, budget: Budget, now: float) -> None:
        allowed = self.allowance(budget, now)
        account = self._account(budget.key)
        account.allowance_after_sent = max(0, allowed - 1)
        account.status_lags_until = now + _LAG_SECONDS
        account.version_when_sent = budget.resource_version
        # Only one try may await its answer.
        account.retry_at = now + account.retry_pause

    def note_accepted(self, budget: Budget) -> None:
        self._account(budget.key).retry_pause = _FIRST_RETRY

    def note_refused(self, budget: Budget, now: float, retry_after: float | None) -> None:
        account = self._account(budget.key)
        account.untrusted_version = account.version_when_sent or budget.resource_version
        account.retry_at = now + max(account.retry_pause, retry_after or 0.0)
        account.retry_pause = min(_LONGEST_RETRY, account.retry_pause * 2)

    def resync(self) -> None:
        self._view.resync()

    def _account(self, key: str) -> _Account:
        return self._accounts.setdefault(key, _Account())


@contextmanager
def watch_budgets(
    cluster: PatientApi, namespaces: Iterable[str], deadline: Deadline, changed: threading.Event
) -> Iterator[BudgetView]:
    """Watch one namespace, or all if several are given.

    The view stays empty if budgets do not exist or may not be read.
    """
    unique = sorted(set(namespaces))
    path = BUDGETS
    if len(unique) == 1:
        path = f"{_POLICY}/namespaces/{unique[0]}/{_PLURAL}"
    view = LiveView(
        cluster=cluster,
        path=path,
        query={},
        shape=wire.WireBudget,
        project=decode.budget,
        deadline=deadline,
        changed=changed,
    )
    with ExitStack() as stack:
        try:
            if unique:
                stack.enter_context(view)
        except ApiError as error:
            is_unavailable_here = error.is_forbidden or isinstance(error, ApiNotFoundError)
            if not is_unavailable_here:
                raise
        yield BudgetView(view)
