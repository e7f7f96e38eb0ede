"""What is told of a plan beside its table: how long it takes, what stands in its way, what a dry run met.

And of a single node: why it is where it is.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rollout.execution.rollout.ledger import Rehearsal
from rollout.model.plan import (
    Blocker,
    BlockerKind,
    ExclusionReason,
    PlannedNode,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
)
from rollout.model.progress import RunResult, excluded_by_trouble
from rollout.model.text import counted, elapsed, joined, natural_key, or_nothing, printable, shortened, version_step
from rollout.planning.plan.explanation import Explanation
from rollout.report.columns import Column, table_text, wrapped
from rollout.report.sentences import grouped
from rollout.report.summary import absences

_ASSUMED = re.compile(r"a reboot takes (\d+)m \(assumed\)")
_RECORDED = re.compile(r"a reboot takes (\w+), ")
_MINUTE, _HOUR = 60, 3600


def estimate_text(plan: RolloutPlan) -> str:
    """Tell how long it takes, why that may be wrong, and how many pods move: in one line."""
    parts = []
    if plan.estimate.seconds:
        assumed = next(filter(None, map(_ASSUMED.fullmatch, plan.estimate.basis)), None)
        doubt = f" (no history yet: {assumed[1]} min a reboot assumed)" if assumed else ""
        parts.append(f"About {_in_words(plan.estimate.seconds)}{doubt}.")
    if pods := plan.summary.pods_to_move:
        parts.append(f"{counted(pods, 'pod')} move{'s' if pods == 1 else ''}.")
    return " ".join(parts)


def usual_reboot(estimate: TimeEstimate) -> str:
    """Return how long a reboot took in past runs, as `, usually 27s`; empty where none is recorded."""
    known = next(filter(None, map(_RECORDED.match, estimate.basis)), None)
    return f", usually {known[1]}" if known else ""


def roughly(seconds: float) -> str:
    """Write a stretch of time that nobody knows better: `45s`, `26m`, `1h02m`."""
    return f"{round(seconds / _MINUTE)}m" if _MINUTE <= seconds < _HOUR else elapsed(seconds)


def _in_words(seconds: float) -> str:
    return f"{roughly(seconds)}in".replace("min", " min") if _MINUTE <= seconds < _HOUR else roughly(seconds)


def nobody(plan: RolloutPlan) -> str:
    """Tell that no node is planned; that there is nothing to do only where every node was judged."""
    missing, left_out = excluded_by_trouble(plan.excluded), RunResult((), excluded=plan.excluded).left_out
    if not missing and set(left_out) == {ExclusionReason.NO_UPDATE}:
        number = len(plan.excluded)
        return f"Nothing to do: {counted(number, 'node')} {'is' if number == 1 else 'are'} up to date."
    head = "No node is planned" if missing else "Nothing to do: no node is planned"
    return f"{joined('; ', head, absences(missing, left_out))}."


def planned_version(node: PlannedNode) -> str:
    """Tell from which version to which a node goes; or that it is only rebooted."""
    if not node.staged:
        return f"{or_nothing(node.running_version)} (reboot only)"
    return version_step(node.running_version, node.staged_version, node.detected_by)


_OF_THE_START = (BlockerKind.RIVAL, BlockerKind.NODES_UNAVAILABLE)
_KINDS = {"pdb": "budget"}
# What a ReplicaSet, or another controller, puts behind the name that its operator knows.
_REPLICA = re.compile(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}$|-\d+$")


def blocked_line(blockers: Sequence[Blocker]) -> str:
    """Tell that apply refuses a plan with these, and how it would do without their nodes; empty for none."""
    if not blockers:
        return ""
    nodes = {blocker.node for blocker in blockers if blocker.kind not in _OF_THE_START}
    way_out = f" --skip blocked leaves {counted(len(nodes), 'node')} out." if nodes else ""
    return f"Blocked: apply will not start.{way_out}"


def finding_lines(findings: Sequence[Blocker] | Sequence[PlanWarning]) -> Iterator[str]:
    """Yield a line a cause, whatever the number of pods and nodes: where, what, what is wrong, and what mends it.

    Of a warning about several pods the nodes are not named: they drain as all others.
    """
    for message, alike in grouped((finding.message, finding) for finding in findings).items():
        nodes = sorted({finding.node for finding in alike if finding.node}, key=natural_key)
        objects = list(dict.fromkeys(item.object for item in alike if item.object != f"node/{item.node}"))
        what, mends, how = printable(message).rpartition(": ")
        cause = f"{what} → {how}" if mends and isinstance(alike[0], Blocker) else printable(message)
        where = "" if len(objects) > 1 and isinstance(alike[0], PlanWarning) else shortened(nodes, 3)
        yield joined("  ", where, _subject(objects), cause)


def _subject(objects: Sequence[str]) -> str:
    """Tell what it is said of; of several pods whose they are."""
    if len(objects) > 1 and all(name.startswith("pod/") for name in objects):
        owners = dict.fromkeys(_REPLICA.sub("", name.removeprefix("pod/")) for name in objects)
        return f"{len(objects)} pods: {shortened(list(owners), 3)}"
    return shortened([_named(name) for name in objects], 3)


def _named(name: str) -> str:
    kind, _, rest = name.partition("/")
    return f"{_KINDS.get(kind, kind)} {rest}".strip()


_POD_COLUMNS = tuple(map(Column, ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")))


def explanation_text(explanation: Explanation, estimate: TimeEstimate) -> str:
    """Tell where the node is, why, why not earlier, what happens to its pods, and what times are reckoned from."""
    if not explanation.wave:
        return f"{printable(explanation.node)} is not planned: {printable(explanation.because)}"
    rows = [
        (
            printable(fate.pod),
            fate.action,
            fate.reason,
            or_nothing(", ".join(fate.budgets)),
            printable("; ".join(dict.fromkeys(filter(None, (fate.message, *fate.warnings))))),
        )
        for fate in explanation.pods
    ]
    findings = (
        *(f"✘ {line}" for line in finding_lines(explanation.blockers)),
        *(f"! {line}" for line in finding_lines(explanation.warnings)),
    )
    basis = printable("; ".join(estimate.basis))
    return joined(
        "\n\n",
        "\n".join(_place(explanation)),
        table_text(_POD_COLUMNS, rows) if rows else "",
        "\n".join(findings),
        f"The plan takes about {elapsed(estimate.seconds)}: {basis}." if estimate.seconds else "",
    )


def _place(explanation: Explanation) -> Iterable[str]:
    company = f", with {shortened(explanation.together_with)}" if explanation.together_with else ", alone"
    yield f"{printable(explanation.node)} is in wave {explanation.wave}{company}: {printable(explanation.because)}"
    # a plan may have hundreds of waves, and of most of them the same is to be said
    for because, alike in groupby(explanation.not_earlier, key=lambda earlier: tuple(earlier.because)):
        waves = [earlier.wave for earlier in alike]
        number = f"wave {waves[0]}" if len(waves) == 1 else f"waves {waves[0]} to {waves[-1]}"
        yield f"  not in {number}: {'; '.join(map(printable, because))}"
    if explanation.arrivals:
        yield f"By then, {counted(explanation.arrivals, 'pod')} from earlier waves will have moved to it, and move on."


def rehearsal_text(nodes: Sequence[Rehearsal], width: int | None) -> str:
    """Show a line for each objection of the API server, and what it comes to; `width` None: no limit."""
    found = [f"✘ {printable(node.node)}  {printable(objection)}" for node in nodes for objection in node.objections]
    allowed = counted(sum(node.evictions for node in nodes), "eviction")
    objected = counted(len(found), "objection") if found else "no objection"
    sentence = f"Dry run: nothing was changed; {allowed} allowed, {objected} by the API server."
    return "\n".join(wrapped(line, width) for line in (*found, sentence))
