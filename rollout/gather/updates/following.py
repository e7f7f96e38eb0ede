"""Many hosts asked to look for an update, and followed in rounds until each has come to an end.

A host that hangs holds a round up for a while, and no answer of another one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from rollout.errors import SshError
from rollout.gather.hosts.polling import poll
from rollout.gather.updates.check import (
    CheckOutcome,
    CheckResult,
    Limits,
    Watched,
    asked,
    concluded,
    may_be_asked,
    seen,
    watched,
)
from rollout.gather.updates.command import CHECK_COMMAND, CHECK_SECONDS, check_refusal
from rollout.model.host import HostFacts, HostObservation, ProbeFailure, UpdateOperation
from rollout.ports import Clock, HostExecutor

_PAUSE_SECONDS = 2.0
_PAUSE_A_HOST = 0.02
_ANSWER_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How the hosts are asked: `concurrency` at a time, each given `probe` seconds; `pause` waits that many."""

    clock: Clock
    pause: Callable[[float], None]
    limits: Limits
    probe: float
    concurrency: int


def first_results(
    selected: tuple[str, ...], observations: Mapping[str, HostObservation], *, wait: bool
) -> tuple[tuple[CheckResult, ...], Mapping[str, HostFacts]]:
    """Those that need no question, and those to ask or to follow; `wait` is whether they will be followed."""
    results: list[CheckResult] = []
    others: dict[str, HostFacts] = {}
    for node in selected:
        observation = observations.get(node)
        ended = _at_once(node, observation, wait=wait)
        if ended is not None:
            results.append(ended)
        elif isinstance(observation, HostFacts):
            others[node] = observation
    return tuple(results), others


def _at_once(node: str, observation: HostObservation | None, *, wait: bool) -> CheckResult | None:
    if observation is None:
        return CheckResult(node, CheckOutcome.UNREACHABLE, message="no host in the inventory matches this Node")
    if isinstance(observation, ProbeFailure):
        return CheckResult(node, CheckOutcome.UNREACHABLE, message=observation.message)
    item = watched(node, observation)
    if observation.update.needs_reboot:
        return item.result(CheckOutcome.STAGED, "it was before")
    return None if wait else _not_to_be_asked(item)


def _not_to_be_asked(item: Watched) -> CheckResult | None:
    """A host whose engine listens to no question now."""
    if item.asked:
        return item.result(CheckOutcome.ASKED, f"it was at it already: {item.last.operation}")
    if item.last.operation is UpdateOperation.REPORTING_ERROR:
        message = "update_engine is reporting a failed update, and accepts no request: try again soon"
        return item.result(CheckOutcome.REFUSED, message)
    return None


def follow(
    started: Mapping[str, HostFacts],
    shell: HostExecutor,
    patience: Patience,
    notice: Callable[[Watched], None],
    *,
    wait: bool,
) -> Iterator[CheckResult]:
    """Results as hosts come to an end: of the question alone, or with `wait` of the check.

    `notice` is called, on the caller's thread, whenever a host does something else or is further with it.
    """
    following = _Following({node: watched(node, facts) for node, facts in started.items()}, shell, patience, notice)
    with shell.attending([facts.host for facts in started.values()]):
        yield from following.ask()
        if not wait:
            yield from (item.result(CheckOutcome.ASKED) for item in following.items.values())
            return
        while following.items:
            patience.pause(max(_PAUSE_SECONDS, _PAUSE_A_HOST * len(following.items)))
            yield from following.look()
            yield from following.ask()


class _Following:
    """The hosts under way. Times are in seconds since it began."""

    def __init__(
        self, items: dict[str, Watched], shell: HostExecutor, patience: Patience, notice: Callable[[Watched], None]
    ) -> None:
        self.items = items
        self._shell = shell
        self._patience = patience
        self._notice = notice
        self._began = patience.clock.monotonic()

    def ask(self) -> Iterator[CheckResult]:
        """Have those that listen now look for an update; the ends of those that refuse."""
        hosts = {node: item.before.host for node, item in self.items.items() if may_be_asked(item)}
        if not hosts:
            return
        answers = self._shell.run_on_all(
            hosts, CHECK_COMMAND, timeout=CHECK_SECONDS, concurrency=self._patience.concurrency
        )
        with closing(answers):
            for node, answer in answers:
                item = self.items[node]
                refusal = answer.message if isinstance(answer, SshError) else check_refusal(answer)
                if refusal:
                    outcome = CheckOutcome.UNREACHABLE if isinstance(answer, SshError) else CheckOutcome.REFUSED
                    yield self.items.pop(node).result(outcome, refusal)
                else:
                    self.items[node] = asked(item, self._now)

    def look(self) -> Iterator[CheckResult]:
        """Take in what all of them are up to; the ends of those that have come to one."""
        results: list[CheckResult] = []
        poll(
            {node: item.before.host for node, item in self.items.items()},
            self._shell,
            timeout=min(self._patience.probe, _ANSWER_SECONDS),
            concurrency=self._patience.concurrency,
            on_result=lambda node, answer: results.extend(self._taken(node, answer)),
        )
        return iter(results)

    def _taken(self, node: str, answer: HostObservation) -> Iterator[CheckResult]:
        before, now = self.items[node], self._now
        item = self.items[node] = seen(before, answer, now)
        result = concluded(item, answer, now, self._patience.limits)
        if result is not None:
            del self.items[node]
            yield result
        elif (item.last, item.problem) != (before.last, before.problem):
            self._notice(item)

    @property
    def _now(self) -> float:
        return self._patience.clock.monotonic() - self._began
