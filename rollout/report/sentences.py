from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import assert_never

from msgspec.structs import replace

from rollout.model.plan import RolloutPlan, TimeEstimate
from rollout.model.progress import (
    Activity,
    EvictedPod,
    NodeCondition,
    NodeDiagnosis,
    NodeFinished,
    NodeRescued,
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
from rollout.model.quantity import Duration
from rollout.model.text import counted, grouped, joined, printable, shell_word, shortened
from rollout.model.timestamps import elapsed
from rollout.report.run_view import NodeView, RunView
from rollout.wording import rescue_text


def sentence(event: StepEvent) -> str:  # noqa: C901, PLR0911, PLR0912 - one case a type of event
    match event:
        case PlanReady():
            return f"plan {printable(event.plan.plan_id)}: {plan_extent(event.plan)}"
        case PodBlocked():
            return f"{printable(event.node)}: {blocked_text(event)}"
        case RunFinished():
            return result_counts(event.result)
        case WaveStarted():
            title = wave_title(event.index, event.waves, event.in_flight)
            return f"{title}: {shortened(event.nodes, most=8)}"
        case WaveSettling():
            return f"wave {event.index} is settling: {printable(event.waiting_for)}"
        case NodeStep():
            detail = ", still down" if is_down(event) else _after_comma(event.detail)
            return f"{printable(event.node)}: {event.phase}{detail}"
        case PodReleased():
            return f"{printable(event.node)}: {printable(event.pod)} can be evicted now"
        case PodsEvicted():
            return f"{printable(event.node)}: evicted {'; '.join(map(eviction_text, event.pods))}"
        case NodeFinished():
            if event.outcome is Outcome.ABORTED:
                return _abort_text(event)
            return f"{outcome_sign(event)} {brief_result(event)}"
        case VersionHeld():
            release = f"rollout release {shell_word(printable(event.version))}"
            lead = "Next" if event.nodes else "To end the hold"
            return f"{printable(event.message)}. {lead}: {release}"
        case NodeRescued():
            return printable(f"{event.node}: {rescue_text(event.problem, event.output)}")
        case Notice():
            return printable(event.message)
        case _:
            assert_never(event)


def plan_extent(plan: RolloutPlan) -> str:
    rolling_count = sum(wave.rolling is not None for wave in plan.waves)
    other_count = len(plan.waves) - rolling_count
    waves = counted(other_count, "wave") if other_count or not rolling_count else ""
    parts = f"{counted(rolling_count, 'part')}, rolling" if rolling_count else ""
    return f"{counted(plan.summary.nodes, 'node')} in {joined(' and ', waves, parts)}"


def wave_title(index: int, waves: int, in_flight: int | None) -> str:
    if in_flight is None:
        return f"wave {index} of {waves}"
    return f"part {index} of {waves}, at most {in_flight} in flight"


def progress_text(view: RunView, now: float) -> str:
    failed = f", {view.failed_count} failed" if view.failed_count else ""
    figures = f"{len(view.ended)} of {counted(view.planned_count, 'node')} finished{failed}"
    if not view.in_flight:
        return figures
    longest = min(view.in_flight, key=lambda node: node.phase_begun_monotonic)
    took = elapsed(now - longest.phase_begun_monotonic)
    if is_down(longest):
        state = f"is {longest.phase}, down for {took}"
    else:
        state = f"has been {longest.phase} for {took}{_after_comma(longest.detail)}"
    return f"{figures}; {phase_counts(view.in_flight)}; {printable(longest.name)} {state}"


def is_down(node: NodeStep | NodeView) -> bool:
    return node.phase is Phase.REBOOTING and node.activity is Activity.HOST_DOWN


def phase_counts(nodes: Iterable[NodeView]) -> str:
    counts = Counter(node.phase for node in nodes)
    return ", ".join(f"{counts[phase]} {phase}" for phase in Phase if counts[phase])


def _after_comma(detail: str) -> str:
    return f", {printable(detail)}" if detail else ""


def blocked_text(event: PodBlocked) -> str:
    blocked = f"eviction blocked by {printable(event.blocker_text)}"
    deadline = f"drain times out in {elapsed(max(0.0, event.seconds_left))}"
    return f"{pod_with_owner(event)}: {blocked} ({why_blocked(event)}) · {deadline}"


def blocked_lines(event: PodBlocked, width: int, age: float = 0.0) -> list[str]:
    """Shorten what blocks an eviction to `width`, or use two lines.

    The time left is that of `age` seconds after the event.
    """
    time_left = elapsed(max(0.0, event.seconds_left - age))
    blocker = printable(event.blocker_text)
    pod = printable(event.pod)
    reason = why_blocked(event)
    brief = _brief_reason(event)
    # The budget is in the pod's namespace.
    namespace, slash, _ = event.budget.partition("/")
    pod_name = pod.removeprefix(f"{namespace}/") if slash else pod
    # From the longest to the shortest.
    forms = (
        f"{pod_with_owner(event)}: eviction blocked by {blocker} ({reason}) · {time_left} left",
        f"{pod}: blocked by {blocker} ({reason}) · {time_left} left",
        f"{pod_name}: blocked by {blocker} ({reason}) · {time_left} left",
        f"{pod_name}: blocked by {blocker} ({brief}) · {time_left} left",
        f"{pod_name}: blocked by {blocker} ({brief})",
    )
    for form in forms:
        if len(form) <= width:
            return [form]
    long_form = f"{pod_name}: blocked by {blocker} ({brief}) · {time_left} left"
    return wrap(long_form, width, max_lines=2, placeholder=" …", break_on_hyphens=False)


def _brief_reason(event: PodBlocked) -> str:
    if event.controller:
        return _who_acts(event)
    if event.needs is not None and event.has is not None:
        return f"needs {event.needs}, has {event.has}"
    return why_blocked(event)


def pod_with_owner(pod: PodBlocked | EvictedPod) -> str:
    """Return `shop/cart-1 (ReplicaSet/cart)`."""
    return joined(" ", printable(pod.pod), f"({printable(pod.owner)})" if pod.owner else "")


def why_blocked(event: PodBlocked) -> str:
    reason = printable(event.message)
    if event.needs is not None and event.has is not None:
        # Above its need, a budget must count the last evictions first.
        uncounted = (
            ", and the last evictions are not counted yet" if event.has > event.needs else ""
        )
        reason = f"needs {event.needs} healthy, has {event.has}{uncounted}"
    return joined("; ", reason, _who_acts(event))


def _who_acts(event: PodBlocked) -> str:
    return f"waits for {printable(event.controller)}" if event.controller else ""


def eviction_text(pod: EvictedPod) -> str:
    gone = "not gone yet" if pod.seconds is None else f"gone after {elapsed(pod.seconds)}"
    return f"{pod_with_owner(pod)}, {gone}"


def _abort_text(result: NodeFinished) -> str:
    took = elapsed(result.seconds)
    reason = printable(result.message)
    if result.left_cordoned:
        return f"{printable(result.node)}: left unchanged after {took}: {reason}"
    return f"{printable(result.node)}: {reason or 'returned to service'}, in {took}"


def outcome_sign(result: NodeFinished) -> str:
    if result.outcome is Outcome.SKIPPED:
        return "·"
    return "✔" if result.succeeded else "✘"


def brief_result(result: NodeFinished) -> str:
    if result.outcome is Outcome.SKIPPED:
        return f"{printable(result.node)}  skipped: {printable(result.message)}"
    if not result.succeeded:
        return f"{printable(result.node)}  {what_failed(result)}"
    version = f"on {result.version}" if result.version else "done"
    parts = (result.node, version, elapsed(result.seconds), result.message)
    return joined("  ", *map(printable, parts))


def what_failed(result: NodeResult | NodeFinished) -> str:
    failure = printable(result.message) or result.outcome.value
    if result.left_cordoned and result.outcome is not Outcome.STRANDED:
        return f"{failure}; it stays cordoned"
    return failure


def result_counts(result: RunResult) -> str:
    return outcome_counts(
        counted(len(result.succeeded), "node"),
        failed=len(result.failed),
        not_rebootable=len(result.not_done),
        aborted=len(result.aborted),
        not_started=len(result.not_started) - len(result.aborted),
    )


def outcome_counts(
    succeeded: str, *, failed: int, not_rebootable: int, aborted: int, not_started: int
) -> str:
    counts = joined(
        ", ",
        f"{succeeded} succeeded",
        f"{failed} failed" if failed else "",
        f"{aborted} {_was_or_were(aborted)} aborted" if aborted else "",
        f"{not_started} {_was_or_were(not_started)} not started" if not_started else "",
    )
    others = ""
    if not_rebootable:
        others = f"{counted(not_rebootable, 'other node')} could not be rebooted"
    return joined("; ", counts, others)


def _was_or_were(count: int) -> str:
    return "was" if count == 1 else "were"


def absence_counts(not_done: Sequence[NotDone], left_out: Mapping[str, int]) -> str:
    reasons = reason_counts(Counter(node.reason for node in not_done))
    cannot = f"{len(not_done)} cannot be rebooted ({reasons})" if not_done else ""
    return joined("; ", cannot, f"left out: {reason_counts(left_out)}" if left_out else "")


def reason_counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {printable(reason)}" for reason, number in reasons.items())


def diagnosis_text(diagnosis: NodeDiagnosis) -> Iterable[str]:
    if diagnosis.ssh_error:
        yield f"last SSH error: {printable(diagnosis.ssh_error)}"
    yield from _conditions_text(diagnosis.conditions)
    if diagnosis.console:
        yield f"console: {printable(diagnosis.console)}"


def _conditions_text(conditions: Iterable[NodeCondition]) -> Iterable[str]:
    types_by_condition = grouped(
        (replace(condition, type=""), printable(condition.type)) for condition in conditions
    )
    for condition, types in types_by_condition.items():
        subject = f"Node condition {types[0]} is"
        if len(types) > 1:
            subject = f"Node conditions {', '.join(types)} are"
        since = f"since {printable(condition.since)}" if condition.since else ""
        state = joined(" ", subject, printable(condition.status), since)
        yield joined(": ", state, printable(condition.reason), printable(condition.message))


def usual_reboot_clause(estimate: TimeEstimate) -> str:
    seconds = estimate.usual_reboot
    return f", usually {Duration(seconds)}" if seconds else ""
