from collections.abc import Sequence

from rollout.model import finding as findings
from rollout.model.text import counted, name_excerpt, shortened
from rollout.wording.words import Words, object_name, unavailable_limit, words

_MOST_FREEZES = 2
_MOST_PODS = 3
_MOST_ALERTS = 3
_MOST_NODES = 5
_NO_WINDOW_OPENS = "no window opens in the next two years"


@words.register
def _window_closed(finding: findings.WindowClosed) -> Words:
    return Words(f"{_why_closed(finding.freezes)}; {_next_window(finding.opens)}")


@words.register
def _no_window_ahead(finding: findings.NoWindowAhead) -> Words:
    return Words(f"{_why_closed(finding.freezes)}; {_NO_WINDOW_OPENS}")


@words.register
def _window_too_short(finding: findings.WindowTooShort) -> Words:
    within = "before the freeze" if finding.ends_in_freeze else "in the window"
    estimate = f"it is estimated to take {finding.needed}"
    return Words(
        f"only {finding.left} left {within}, and {estimate}; {_next_window(finding.opens)}"
    )


def _why_closed(freezes: Sequence[str]) -> str:
    frozen = f"frozen ({shortened(freezes, _MOST_FREEZES)})"
    return frozen if freezes else "outside the maintenance window"


def _next_window(opens: str) -> str:
    return f"the next window opens {opens}" if opens else _NO_WINDOW_OPENS


@words.register
def _no_window_fits(finding: findings.NoWindowFits) -> Words:
    estimate = f"it is estimated to take {finding.needed}"
    return Words(f"{estimate}, longer than any maintenance window")


@words.register
def _deadline_too_near(finding: findings.DeadlineTooNear) -> Words:
    left = f"only {finding.left} left until --active-deadline"
    return Words(f"{left}, and it is estimated to take {finding.needed}")


@words.register
def _memory_unreadable(finding: findings.MemoryUnreadable) -> Words:
    return Words(finding.problem, fix="`rollout doctor` shows a fix")


@words.register
def _memory_unwritable(finding: findings.MemoryUnwritable) -> Words:
    return Words(f"failures could not be recorded: {finding.problem}")


@words.register
def _blocking_pods(finding: findings.BlockingPods) -> Words:
    verb = "is" if len(finding.pods) == 1 else "are"
    noun = "pod" if len(finding.pods) == 1 else "pods"
    pods = f"{noun} {shortened(finding.pods, _MOST_PODS)} {verb} running on it"
    return Words(f"{pods} (gates.blocking-pod-selector {finding.selector})")


@words.register
def _blocked_now(finding: findings.BlockedNow) -> Words:
    return Words(f"{object_name(finding.object)} {finding.message}")


@words.register
def _controller_moving(finding: findings.ControllerMoving) -> Words:
    others = f"its pods on {finding.node} have to move first"
    return Words(f"{finding.controller} has pods on this node, and {others}")


@words.register
def _alerts_firing(finding: findings.AlertsFiring) -> Words:
    verb = "is" if len(finding.names) == 1 else "are"
    noun = "alert" if len(finding.names) == 1 else "alerts"
    return Words(f"{noun} {shortened(finding.names, _MOST_ALERTS)} {verb} firing")


@words.register
def _alerts_unreadable(finding: findings.AlertsUnreadable) -> Words:
    return Words(f"alerts cannot be read: {finding.problem}")


@words.register
def _alerts_not_asked(finding: findings.AlertsNotAsked) -> Words:
    setting = "alerts.prometheus-url is not set to that URL"
    return Words(f"alerts from {finding.url} are not read, because {setting}")


@words.register
def _object_unhealthy(finding: findings.ObjectUnhealthy) -> Words:
    return Words(f"{finding.resource} is not healthy: {finding.expression} is false")


@words.register
def _object_health_unknown(finding: findings.ObjectHealthUnknown) -> Words:
    return Words(f"the health of {finding.resource} is unknown: {finding.problem}")


@words.register
def _gate_timeout(finding: findings.GateTimeout) -> Words:
    held = words(finding.held)
    return Words(f"{held.cause}, even after gates.timeout {finding.timeout}", fix=held.fix)


@words.register
def _wave_not_confirmed(finding: findings.WaveNotConfirmed) -> Words:
    return Words(f"wave {finding.wave} was not confirmed")


@words.register
def _command_refused(finding: findings.CommandRefused) -> Words:
    return Words(finding.answer)


@words.register
def _stop_requested(_finding: findings.StopRequested) -> Words:
    return Words("stopped on request")


@words.register
def _deadline_reached(_finding: findings.DeadlineReached) -> Words:
    return Words("--active-deadline has been reached")


@words.register
def _lock_lost(_finding: findings.LockLost) -> Words:
    return Words("the lock was lost")


@words.register
def _node_marked_by_other(finding: findings.NodeMarkedByOther) -> Words:
    return Words(f"rollout {name_excerpt(finding.run_id)} has taken over {finding.node}")


@words.register
def _failure_limit(finding: findings.FailureLimit) -> Words:
    failed = counted(finding.failed, "node")
    return Words(f"{failed} failed, and --max-failures is {finding.limit}")


@words.register
def _unavailable_limit(finding: findings.UnavailableLimit) -> Words:
    limit = unavailable_limit(finding.limit, finding.pool)
    return Words(f"{limit} is used up by {shortened(finding.nodes, _MOST_NODES)}")


@words.register
def _unsettled(finding: findings.Unsettled) -> Words:
    wave = f"wave {finding.wave}" if finding.wave else ""
    last = finding.node or wave or "the interruption"
    unsettled = f"after {last} the cluster did not settle within {finding.timeout}"
    return Words(f"{unsettled}: {finding.missing}")


@words.register
def _api_unavailable(finding: findings.ApiUnavailable) -> Words:
    return Words(f"the API server is unavailable: {finding.message}")


@words.register
def _rest_blocked(finding: findings.RestBlocked) -> Words:
    return Words(finding.message)
