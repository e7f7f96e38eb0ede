"""Each event as one sentence, and counts as parts of one: the same words on a terminal and in a CI log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from textwrap import wrap
from typing import assert_never

from rollout.model.plan import RolloutPlan
from rollout.model.progress import (
    Activity,
    EvictedPod,
    Findings,
    NodeFinished,
    NodeResult,
    NodeStep,
    NotDone,
    Notice,
    Outcome,
    Phase,
    PlanReady,
    PodBlocked,
    PodReleased,
    PodsEvicted,
    RunFinished,
    RunResult,
    StepEvent,
    VersionHeld,
    WaveSettling,
    WaveStarted,
)
from rollout.model.text import counted, grouped, joined, printable, shell_word, shortened
from rollout.model.timestamps import elapsed
from rollout.report.run_view import NodeView, RunView


def capitalize(text: str) -> str:
    """Return the text as a sentence begins; the rest of it, such as names, stays as it is."""
    return text[:1].upper() + text[1:]


def sentence(event: StepEvent) -> str:  # noqa: C901, PLR0911 - one return a type of event
    """Tell what happened, safe to print."""
    match event:
        case PlanReady():
            return f"plan {printable(event.plan.plan_id)}: {extent(event.plan)}"
        case PodBlocked():
            return f"{printable(event.node)}: {blocked_text(event)}"
        case RunFinished():
            return result_counts(event.result)
        case WaveStarted():
            return (
                f"{wave_title(event.index, event.waves, event.in_flight)}:"
                f" {shortened(event.nodes, most=8)}"
            )
        case WaveSettling():
            return f"wave {event.index} settles: {printable(event.waiting_for)}"
        case NodeStep():
            return f"{printable(event.node)}: {event.phase}" + (
                ", still down" if is_down(event) else _detail(event.detail)
            )
        case PodReleased():
            return f"{printable(event.node)}: {printable(event.pod)} may go"
        case PodsEvicted():
            return f"{printable(event.node)}: evicted {'; '.join(map(eviction_text, event.pods))}"
        case NodeFinished():
            return (
                _abort_text(event)
                if event.outcome is Outcome.ABORTED
                else f"{sign(event)} {brief_result(event)}"
            )
        case VersionHeld():
            return (
                f"{printable(event.message)}. Next: rollout release"
                f" {shell_word(printable(event.version))}"
            )
        case Notice():
            return printable(event.message)
        case _:
            assert_never(event)


def extent(plan: RolloutPlan) -> str:
    """Tell how large a plan is: `12 nodes in 4 waves`, `12 nodes in 2 parts, rolling`, or both where pools differ."""
    rolling = sum(wave.rolling is not None for wave in plan.waves)
    waves = (
        counted(len(plan.waves) - rolling, "wave")
        if rolling < len(plan.waves) or not rolling
        else ""
    )
    parts = f"{counted(rolling, 'part')}, rolling" if rolling else ""
    return f"{counted(plan.summary.nodes, 'node')} in {joined(' and ', waves, parts)}"


def wave_title(index: int, waves: int, in_flight: int | None) -> str:
    """Write `wave 1 of 2`, or `part 1 of 2, 3 in flight at most`."""
    if in_flight is None:
        return f"wave {index} of {waves}"
    return f"part {index} of {waves}, {in_flight} in flight at most"


def progress_text(view: RunView, now: float) -> str:
    """Tell how the whole stands, at a monotonic reading."""
    failed = f", {view.failed} failed" if view.failed else ""
    figures = f"{len(view.ended)} of {counted(view.planned, 'node')} ended{failed}"
    longest = min(view.in_flight, key=lambda node: node.entered, default=None)
    if longest is None:
        return figures
    took = elapsed(now - longest.entered)
    how = f", down for {took}" if is_down(longest) else f" for {took}{_detail(longest.detail)}"
    return f"{figures}; {phases(view.in_flight)}; {printable(longest.name)} is {longest.phase}{how}"


def is_down(node: NodeStep | NodeView) -> bool:
    """Whether its host does not answer, as expected during a reboot."""
    return node.phase is Phase.REBOOTING and node.activity is Activity.HOST_DOWN


def phases(nodes: Iterable[NodeView]) -> str:
    """Tell how many nodes are in which phase, in the order of phases."""
    counts = Counter(node.phase for node in nodes)
    return ", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase])


def _detail(detail: str) -> str:
    return f", {printable(detail)}" if detail else ""


def blocked_text(event: PodBlocked, since: float = 0.0) -> str:
    """Tell what holds a pod, for how much longer it may, and why; so many seconds since that was told.

    What matters most comes first, for the line may be too short for it.
    """
    left = elapsed(max(0.0, event.seconds_left - since))
    return f"held by {printable(event.held_by)} · {left} left · {pod_with_owner(event)}: {why_held(event)}"


def blocked_lines(event: PodBlocked, width: int, since: float = 0.0) -> list[str]:
    """Return the same in at most `width` columns. The least important parts are left out first.

    What does not fit on one line gets two.
    """
    left = elapsed(max(0.0, event.seconds_left - since))
    holder = printable(event.held_by)
    pod = printable(event.pod)
    why = why_held(event)
    namespace, slash, _ = event.budget.partition("/")
    own = pod.removeprefix(f"{namespace}/") if slash else pod
    is_counted = event.needs is not None and event.has is not None
    figures = f"needs {event.needs}, has {event.has}" if is_counted else why
    forms = (
        blocked_text(event, since),
        f"held by {holder} · {left} left · {pod}: {why}",
        f"held by {holder} · {left} left · {own}: {why}",
        f"held by {holder} · {own}: {figures} · {left} left",
        f"held by {holder} · {own}: {figures}",
    )
    if fitting := next((form for form in forms if len(form) <= width), ""):
        return [fitting]
    whole = f"held by {holder} · {own} · {figures} · {left} left"
    return wrap(whole, width, max_lines=2, placeholder=" …", break_on_hyphens=False)


def pod_with_owner(event: PodBlocked) -> str:
    """Write a pod, and whose it is."""
    return printable(event.pod) + (f" ({printable(event.owner)})" if event.owner else "")


def why_held(event: PodBlocked) -> str:
    """Tell what a budget that refuses wants; one that has more has not counted its last evictions yet."""
    if event.needs is None or event.has is None:
        return printable(event.message)
    uncounted = ", its last evictions not counted yet" if event.has > event.needs else ""
    return f"needs {event.needs} healthy, has {event.has}{uncounted}"


def eviction_text(pod: EvictedPod) -> str:
    """Write `shop/cart-1 (ReplicaSet/cart), gone after 3s`."""
    owner = f" ({printable(pod.owner)})" if pod.owner else ""
    gone = "not gone yet" if pod.seconds is None else f"gone after {elapsed(pod.seconds)}"
    return f"{printable(pod.pod)}{owner}, {gone}"


def _abort_text(result: NodeFinished) -> str:
    """How an abort left a node, and what that took, not how long the rollout had been at it."""
    took = elapsed(result.seconds)
    why = printable(result.message)
    undone = (
        f"left as it is after {took}: {why}"
        if result.left_cordoned
        else f"{why or 'returned'}, in {took}"
    )
    return f"{printable(result.node)}: {undone}"


def sign(result: NodeFinished) -> str:
    """Return a sign of whether it went well. A node that was not touched has a neutral one."""
    if result.outcome is Outcome.SKIPPED:
        return "·"
    return "✔" if result.succeeded else "✘"


def brief_result(result: NodeFinished) -> str:
    """Tell how a node ended, beside that sign: `worker-1  on 4152.2.0  3m20s`."""
    if result.outcome is Outcome.SKIPPED:
        return f"{printable(result.node)}  skipped: {printable(result.message)}"
    if not result.succeeded:
        return f"{printable(result.node)}  {what_failed(result)}"
    parts = (
        result.node,
        f"on {result.version}" if result.version else "done",
        elapsed(result.seconds),
        result.message,
    )
    return "  ".join(printable(part) for part in parts if part)


def what_failed(result: NodeResult | NodeFinished) -> str:
    """Tell what is wrong with a node that did not succeed."""
    stays = (
        "; it stays cordoned"
        if result.left_cordoned and result.outcome is not Outcome.STRANDED
        else ""
    )
    return (printable(result.message) or result.outcome) + stays


def result_counts(result: RunResult) -> str:
    """Tell how many nodes ended how."""
    done = counted(len(result.succeeded), "node")
    return outcome_counts(done, len(result.failed), len(result.not_done), len(result.not_started))


def outcome_counts(succeeded: str, failed: int, not_done: int, not_started: int) -> str:
    """Write `3 nodes succeeded, 1 failed`: what is none is not told of the others."""
    others = ((failed, "failed"), (not_done, "not done"), (not_started, "not started"))
    return ", ".join(
        (f"{succeeded} succeeded", *(f"{count} {word}" for count, word in others if count))
    )


def absence_counts(not_done: Sequence[NotDone], left_out: Mapping[str, int]) -> str:
    """Tell how many nodes cannot be rebooted, and how many are left out, for which reasons; empty where none is."""
    reasons = reason_counts(Counter(node.reason for node in not_done))
    cannot = f"{len(not_done)} cannot be rebooted ({reasons})" if not_done else ""
    return joined("; ", cannot, f"left out: {reason_counts(left_out)}" if left_out else "")


def reason_counts(reasons: Mapping[str, int]) -> str:
    """Write `1 paused, 3 no-update`."""
    return ", ".join(f"{number} {printable(reason)}" for reason, number in reasons.items())


def findings_text(findings: Findings) -> Iterable[str]:
    """Yield what was seen of a node that failed, a line each; conditions that say the same of the Node have one.

    A silent kubelet leaves them all alike.
    """
    if findings.ssh_error:
        yield f"last SSH error: {printable(findings.ssh_error)}"
    alike = grouped(
        (replace(condition, type=""), printable(condition.type))
        for condition in findings.conditions
    )
    for condition, types in alike.items():
        why = ": ".join(printable(part) for part in (condition.reason, condition.message) if part)
        since = f" since {printable(condition.since)}" if condition.since else ""
        subject = (
            f"Node condition {types[0]} is"
            if len(types) == 1
            else f"Node conditions {', '.join(types)} are"
        )
        yield f"{subject} {printable(condition.status)}{since}" + (f": {why}" if why else "")
    if findings.console:
        yield f"console: {printable(findings.console)}"
