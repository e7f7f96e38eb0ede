import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter

from rollout.execution.rollout.ledger import Rehearsal
from rollout.model.host import UpdateState
from rollout.model.plan import (
    Blocker,
    BlockerKind,
    Exclusion,
    ExclusionReason,
    PlannedNode,
    PlanWarning,
    RolloutPlan,
    TimeEstimate,
    Wave,
)
from rollout.model.progress import RunResult, wrongly_left_out
from rollout.model.text import (
    counted,
    grouped,
    joined,
    natural_key,
    or_dash,
    printable,
    shell_word,
    shortened,
    version_step,
)
from rollout.model.timestamps import elapsed, parse_timestamp
from rollout.planning.plan.explanation import Explanation, PodFate
from rollout.planning.plan.rules import relaxed_rules
from rollout.report.columns import Column, Row, table_text, wrap
from rollout.report.rules import rule_lines
from rollout.report.sentences import absence_counts, extent
from rollout.wording.nodes import check_trouble

_COLUMNS = (
    Column("WAVE", right=True),
    Column("NODES", wraps=True),
    Column("ZONES", drop_order=1),
    Column("PODS", drop_order=2, right=True),
    Column("TIME", drop_order=3, right=True),
    Column("VERSION"),
    Column("NOTE", note=True),
)
_MANY = 20
_MOST_NAMED = 8
_MOST_NOTES = 3
# Up to date needs no word; the other states have a warning.
_WITHOUT_WORD = (
    UpdateState.UP_TO_DATE,
    UpdateState.ROLLED_BACK,
    UpdateState.CHECK_FAILED,
    UpdateState.NOT_CHECKING,
)
_SEE_DOCTOR = " → rollout doctor"
# The table and the heading show these.
_SHOWN_ELSEWHERE = ("--max-unavailable", "--rollback")
# For a plan that is too long for its terminal.
_BRIEF_FINDINGS = 3


def plan_text(
    plan: RolloutPlan,
    *,
    zones: Mapping[str, str],
    width: int | None = None,
    now: datetime | None = None,
    where: str = "",
    blocked: str = "",
    beside: str = "",
    next_step: str = "",
) -> str:
    """`zones` are by node name. `where` is the operator's name of the cluster.

    `blocked` says why apply will not start, `beside` that another rollout is unfinished. Without a
    `width`, all rows and columns are included.
    """
    is_wide = width is None
    if beside:
        plan = _without_begun_nodes(plan)
    waves = []
    outcome = no_nodes_text(plan)
    if plan.waves:
        table = table_text(_COLUMNS, _wave_rows(plan, zones, width), width)
        waves = [_heading(plan, where), "", table]
        outcome = estimate_text(plan)
    notes = [*warning_lines(plan, is_wide=is_wide), *_left_out(plan, is_wide=is_wide)]
    if now:
        notes += rule_lines(plan.policy, now)
    obstacles = [f"✘ {line}" for line in finding_lines(plan.blockers)]
    obstacles += [line for line in (blocked, beside) if line]
    next_lines = ["Next:", f"    {next_step}"] if next_step else []
    parts = (waves, notes, [outcome], obstacles, next_lines)
    return wrap(joined("\n\n", *("\n".join(part) for part in parts)), width)


def _without_begun_nodes(plan: RolloutPlan) -> RolloutPlan:
    """Another rollout's nodes are reported separately."""
    excluded = tuple(
        exclusion
        for exclusion in plan.excluded
        if exclusion.reason is not ExclusionReason.LEFT_CORDONED
    )
    blockers = tuple(
        blocker for blocker in plan.blockers if blocker.kind is not BlockerKind.NODES_UNAVAILABLE
    )
    return replace(plan, excluded=excluded, blockers=blockers)


def brief_text(
    plan: RolloutPlan,
    *,
    zones: Mapping[str, str],
    width: int | None,
    height: int | None = None,
    where: str = "",
    next_step: str = "",
    whole_command: str = "",
    control_plane: Container[str] = (),
) -> str:
    """Render a plan above a question, in at most `height` lines.

    If it is too long, `whole_command` shows the rest. `next_step` is for plans without a question.
    """
    if width is None or not plan.waves:
        return plan_text(plan, zones=zones, width=width, where=where, next_step=next_step)
    heading = wrap(_heading(plan, where), width)
    findings = [*warning_lines(plan), *_left_out(plan, is_wide=False)]
    relaxed = _relaxed_flags(plan)
    estimate = estimate_text(plan)

    def layout(rows: Sequence[Row], notes: Sequence[str], *last: str) -> str:
        lines = [wrap(line, width) for line in (relaxed, *notes, estimate, *last) if line]
        return "\n".join((heading, table_text(_COLUMNS, rows, width), *lines))

    roomy = layout(_wave_rows(plan, zones, width), findings)
    if height is None or _line_count(roomy) <= height:
        return roomy
    notes = findings[:_BRIEF_FINDINGS]
    rest = len(findings) - len(notes)
    if rest:
        notes.append(f"! {counted(rest, 'more finding')}")
    last = tuple[str, ...]()
    if whole_command:
        last = ("This is not all of the plan. To see all of it:", f"    {whole_command}")
    room = height - _line_count(layout((), notes, *last))
    rows = _wave_rows(plan, zones, width, most=room, control_plane=control_plane)
    return layout(rows, notes, *last)


def _line_count(text: str) -> int:
    return text.count("\n") + 1


def consequence(plan: RolloutPlan) -> str:
    most = max(_most_at_once(wave) for wave in plan.waves)
    at_once = f"at most {most} at once" if most > 1 else "one at a time"
    seconds = plan.estimate.seconds
    takes = f", in about {_in_words(seconds)}" if seconds else ""
    nodes = counted(plan.summary.nodes, "node")
    version = printable(plan.policy.rollback)
    if version:
        return (
            f"This holds {version}, and drains and reboots {nodes} to take them back from it,"
            f" {at_once}{takes}."
        )
    return f"This drains and reboots {nodes}, {at_once}{takes}."


def _most_at_once(wave: Wave) -> int:
    if wave.rolling:
        return min(wave.rolling.in_flight, len(wave.nodes))
    return len(wave.nodes)


def _relaxed_flags(plan: RolloutPlan) -> str:
    rules = [rule for rule in relaxed_rules(plan.policy) if rule.setting not in _SHOWN_ELSEWHERE]
    flags = "; ".join(rule.flag for rule in rules)
    return f"! as you asked, not the default: {printable(flags)}" if flags else ""


def file_text(plan: RolloutPlan, file: str, width: int | None) -> str:
    name = f"{printable(file)}, made {printable(plan.created_at)}: {extent(plan)}"
    lines = [f"{name} on {printable(plan.cluster.server)}"]
    lines += [f"! {printable(str(rule))}" for rule in relaxed_rules(plan.policy)]
    return "\n".join(wrap(line, width) for line in lines)


def _heading(plan: RolloutPlan, where: str) -> str:
    versions = _versions(plan.nodes)
    change = f"   {versions[0]}" if len(versions) == 1 else ""
    cluster = printable(where or plan.cluster.server)
    what = "Rollback of " if plan.policy.rollback else ""
    return f"{what}{counted(plan.summary.nodes, 'node')} on {cluster}{change}"


def warning_lines(plan: RolloutPlan, *, is_wide: bool = False) -> Iterator[str]:
    nodes_by_cause: dict[tuple[str, str], list[str]] = {}
    for exclusion in plan.excluded:
        if exclusion.reason.is_trouble:
            message = exclusion.message if is_wide else _brief_cause(plan, exclusion)
            nodes_by_cause.setdefault((exclusion.reason, message), []).append(exclusion.node)
    for (reason, message), names in nodes_by_cause.items():
        yield f"! {shortened(names)}  {reason}: {printable(message)}"
    for sentence, names in grouped(_update_sentences(plan)).items():
        yield f"! {shortened(names)}  {printable(sentence)}"
    yield from (f"! {line}" for line in finding_lines(plan.warnings))


def _update_sentences(plan: RolloutPlan) -> Iterator[tuple[str, str]]:
    for exclusion in plan.excluded:
        update = exclusion.update
        if update and update.state is UpdateState.ROLLED_BACK:
            sentence = f"rolled back from {update.rolled_back_from}, and nothing is staged now"
            yield sentence, exclusion.node
        elif update and update.state is UpdateState.CHECK_FAILED:
            yield f"check failed: {exclusion.message}", exclusion.node
        elif update and update.state is UpdateState.NOT_CHECKING:
            trouble = check_trouble(update, parse_timestamp(plan.created_at))
            yield f"does not get its updates: {trouble}", exclusion.node


def _brief_cause(plan: RolloutPlan, exclusion: Exclusion) -> str:
    if exclusion.reason is not ExclusionReason.UNREACHABLE:
        return exclusion.message
    return f"{exclusion.brief or exclusion.message}{_SEE_DOCTOR if plan.waves else ''}"


def _left_out(plan: RolloutPlan, *, is_wide: bool) -> Iterator[str]:
    exclusions = [entry for entry in plan.excluded if not entry.reason.is_trouble]
    if is_wide:
        causes = grouped(((entry.reason, entry.message), entry.node) for entry in exclusions)
        for (reason, message), names in causes.items():
            yield f"· {shortened(names)}  {reason}: {printable(message)}"
        return
    nodes_by_word = grouped((_word_for(entry), entry.node) for entry in exclusions)
    groups = [f"{shortened(names)} ({word})" for word, names in nodes_by_word.items() if word]
    if groups:
        yield f"Left out: {'; '.join(groups)}"


def _word_for(exclusion: Exclusion) -> str:
    update = exclusion.update
    if exclusion.reason is not ExclusionReason.NO_UPDATE:
        return exclusion.reason
    if update is None or update.state in _WITHOUT_WORD:
        return ""
    if update.state is UpdateState.BEHIND:
        return f"behind: the cluster has {update.newest_version}"
    return update.state


def _wave_rows(
    plan: RolloutPlan,
    zones: Mapping[str, str],
    width: int | None,
    *,
    most: int = _MANY,
    control_plane: Container[str] | None = None,
) -> Sequence[Row]:
    """Return the rows of the table, one per wave without a `width`.

    If there are more than `most`, waves of the same size share a row, and then consecutive waves,
    but not workers with the `control_plane`.
    """
    if width is None:
        return [_wide_row(wave, zones) for wave in plan.waves]

    def has_control_plane(wave: Wave) -> bool:
        return control_plane is not None and any(node.name in control_plane for node in wave.nodes)

    keys: list[Callable[[Wave], object]] = [_equality_key, _similarity_key]
    if control_plane is not None:
        keys.append(has_control_plane)
    groups: list[list[Wave]] = []
    for key in keys:
        groups = [list(group) for _, group in groupby(plan.waves, key=key)]
        if len(groups) <= most:
            break
    all_zones = {zones.get(node.name, "") for node in plan.nodes}
    is_mixed = len(_versions(plan.nodes)) > 1
    return [_group_row(group, zones, all_zones, is_mixed=is_mixed) for group in groups]


def _wide_row(wave: Wave, zones: Mapping[str, str]) -> Row:
    nodes = _in_order(wave)
    return (
        str(wave.index),
        _every_name(wave),
        " ".join(_zones_of(nodes, zones)).strip(),
        str(_pods(wave)),
        _rough_time(wave.estimate.seconds),
        "\n".join(_versions(nodes)),
        printable(wave.because),
    )


def _group_row(
    group: Sequence[Wave],
    zones: Mapping[str, str],
    all_zones: AbstractSet[str],
    *,
    is_mixed: bool,
) -> Row:
    """`is_mixed`: the plan has several version changes."""
    nodes: list[PlannedNode] = []
    for wave in group:
        nodes += _in_order(wave)
    names = _zones_of(nodes, zones)
    has_all_zones = len(names) > 2 and all_zones == set(names)  # noqa: PLR2004
    first = group[0].index
    last = group[-1].index
    waves_with_note = group[:1] if len(group) > _MANY else group
    notes = list(dict.fromkeys(printable(wave.note) for wave in waves_with_note if wave.note))
    return (
        str(first) if first == last else f"{first}\N{EN DASH}{last}",
        _names(group, nodes),
        "all" if has_all_zones else " ".join(names).strip(),
        str(sum(map(_pods, group))),
        _rough_time(sum(wave.estimate.seconds for wave in group)),
        "\n".join(_versions(nodes)) if is_mixed else "",
        "; ".join(notes) if len(notes) <= _MOST_NOTES else "",
    )


def _zones_of(nodes: Sequence[PlannedNode], zones: Mapping[str, str]) -> Sequence[str]:
    return list(dict.fromkeys(printable(zones.get(node.name, "")) for node in nodes))


def _rough_time(seconds: float) -> str:
    return rough_duration(seconds) if seconds else ""


def _equality_key(wave: Wave) -> tuple[object, ...]:
    # Only waves of one node can be equal.
    is_single = len(wave.nodes) == 1 and not wave.rolling
    return (
        0 if is_single else wave.index,
        wave.note,
        _versions(wave.nodes),
        _pods(wave),
        rough_duration(wave.estimate.seconds),
    )


def _similarity_key(wave: Wave) -> tuple[object, ...]:
    index = wave.index if wave.rolling else 0
    return index, len(wave.nodes), wave.limit, _versions(wave.nodes)


def _every_name(wave: Wave) -> str:
    delays = wave.rolling.begins if wave.rolling else {}
    names = []
    for node in wave.nodes:
        delay = delays.get(node.name)
        begins = f" (+{elapsed(delay)})" if delay else ""
        names.append(f"{printable(node.name)}{begins}")
    return ", ".join(names)


def _in_order(wave: Wave) -> Sequence[PlannedNode]:
    if wave.rolling:
        return wave.nodes
    return sorted(wave.nodes, key=lambda node: natural_key(node.name))


def _names(group: Sequence[Wave], nodes: Sequence[PlannedNode]) -> str:
    names = [printable(node.name) for node in nodes]
    if len(group) == 1:
        return shortened(names, _MANY, " ")
    sizes = {len(wave.nodes) for wave in group}
    size = max(sizes)
    if size == 1 and len(names) <= _MOST_NAMED:
        return ", then ".join(names)
    if size == 1:
        return f"{len(nodes)} nodes, one after another"
    up_to = "up to " if len(sizes) > 1 else ""
    return f"{len(nodes)} nodes, {up_to}{size} a wave"


def _pods(wave: Wave) -> int:
    return sum(node.evict for node in wave.nodes)


def _versions(nodes: Iterable[PlannedNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(planned_version, nodes)))


_MINUTE = 60
_HOUR = 3600


def estimate_text(plan: RolloutPlan) -> str:
    parts = []
    if plan.estimate.seconds:
        minutes = plan.estimate.assumed_reboot // _MINUTE
        doubt = f" (no history yet: assuming {minutes} min per reboot)" if minutes else ""
        parts.append(f"About {_in_words(plan.estimate.seconds)}{doubt}.")
    pods = plan.summary.pods_to_move
    if pods:
        parts.append(f"{counted(pods, 'pod')} will be evicted.")
    awaited = sum(node.wait for node in plan.nodes)
    if awaited:
        longest = max(node.wait_seconds for node in plan.nodes)
        time = _in_words(longest)
        parts.append(f"Drains wait up to {time} for {counted(awaited, 'pod')} to complete.")
    return " ".join(parts)


def rough_duration(seconds: float) -> str:
    if _MINUTE <= seconds < _HOUR:
        return f"{round(seconds / _MINUTE)}m"
    return elapsed(seconds)


def _in_words(seconds: float) -> str:
    if _MINUTE <= seconds < _HOUR:
        return f"{round(seconds / _MINUTE)} min"
    return elapsed(seconds)


def no_nodes_text(plan: RolloutPlan) -> str:
    """`Nothing to do` is only said if no problem excludes a node."""
    in_trouble = wrongly_left_out(plan.excluded)
    left_out = RunResult((), excluded=plan.excluded).left_out
    if plan.policy.rollback and not in_trouble and set(left_out) == {ExclusionReason.NO_UPDATE}:
        version = printable(plan.policy.rollback)
        return f"Nothing to do: none of {counted(len(plan.excluded), 'node')} runs {version}."
    if not in_trouble and set(left_out) == {ExclusionReason.NO_UPDATE}:
        return _nothing_staged(plan.excluded)
    lead = "No node is planned" if in_trouble else "Nothing to do: no node is planned"
    sentence = f"{joined('; ', lead, absence_counts(in_trouble, left_out))}."
    if not plan.policy.rollback:
        return sentence
    version = shell_word(plan.policy.rollback)
    return f"{sentence} A rollback without nodes holds no version: rollout hold {version}"


def _nothing_staged(excluded: Sequence[Exclusion]) -> str:
    nodes = counted(len(excluded), "node")
    if all(entry.update and entry.update.is_current for entry in excluded):
        return f"Nothing to do: {nodes} {'is' if len(excluded) == 1 else 'are'} up to date."
    states = Counter(entry.update.state for entry in excluded if entry.update)
    counts = [
        f"{states[state]} {state.replace('-', ' ')}" for state in UpdateState if states[state]
    ]
    return f"Nothing to do: no update is staged on {joined(': ', nodes, ', '.join(counts))}."


def planned_version(node: PlannedNode) -> str:
    if not node.staged:
        return f"{or_dash(node.running_version)} (reboot only)"
    return version_step(node.running_version, node.staged_version, node.detected_by)


# Leaving out nodes does not resolve these blockers.
_OF_THE_START = (BlockerKind.RIVAL, BlockerKind.NODES_UNAVAILABLE)
_KINDS = {"pdb": "PDB"}
# The suffix that a controller such as a ReplicaSet adds to its name.
_REPLICA = re.compile(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}$|-\d+$")


def blocked_line(blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return ""
    nodes = {blocker.node for blocker in blockers if blocker.kind not in _OF_THE_START}
    them = "this node" if len(nodes) == 1 else f"these {len(nodes)} nodes"
    fix = f" To leave {them} out, use --skip blocked." if nodes else ""
    return f"Blocked: apply will not start.{fix}"


def finding_lines(findings: Sequence[Blocker] | Sequence[PlanWarning]) -> Iterator[str]:
    """A warning about several objects does not name nodes."""
    for alike in grouped((finding.message, finding) for finding in findings).values():
        first = alike[0]
        objects = list(
            dict.fromkeys(entry.object for entry in alike if entry.object != f"node/{entry.node}")
        )
        names = sorted({entry.node for entry in alike if entry.node}, key=natural_key)
        nodes = shortened(names, 3)
        if isinstance(first, PlanWarning) and len(objects) > 1:
            nodes = ""
        yield joined("  ", nodes, _subject(objects), _cause_and_fix(first))


def _cause_and_fix(finding: Blocker | PlanWarning) -> str:
    if isinstance(finding, Blocker) and finding.fix:
        return f"{printable(finding.cause)} → {printable(finding.fix)}"
    return printable(finding.message)


def _subject(objects: Sequence[str]) -> str:
    if len(objects) > 1 and all(name.startswith("pod/") for name in objects):
        owners = dict.fromkeys(_REPLICA.sub("", name.removeprefix("pod/")) for name in objects)
        return f"{len(objects)} pods: {shortened(list(owners), 3)}"
    return shortened([_kind_and_name(name) for name in objects], 3)


def _kind_and_name(name: str) -> str:
    kind, _, rest = name.partition("/")
    return f"{_KINDS.get(kind, kind)} {rest}".strip()


_POD_COLUMNS = tuple(map(Column, ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")))


def explanation_text(explanation: Explanation, estimate: TimeEstimate) -> str:
    if not explanation.wave:
        return f"{printable(explanation.node)} is not planned: {printable(explanation.because)}"
    findings = [f"✘ {line}" for line in finding_lines(explanation.blockers)]
    findings += [f"! {line}" for line in finding_lines(explanation.warnings)]
    rows = [_pod_row(fate) for fate in explanation.pods]
    basis = printable("; ".join(estimate.basis))
    return joined(
        "\n\n",
        "\n".join(_place_lines(explanation)),
        table_text(_POD_COLUMNS, rows) if rows else "",
        "\n".join(findings),
        f"The plan takes about {elapsed(estimate.seconds)}: {basis}." if estimate.seconds else "",
    )


def _pod_row(fate: PodFate) -> Row:
    notes = dict.fromkeys(note for note in (fate.message, *fate.warnings) if note)
    return (
        printable(fate.pod),
        fate.action,
        fate.reason,
        or_dash(", ".join(fate.budgets)),
        printable("; ".join(notes)),
    )


def _place_lines(explanation: Explanation) -> Iterable[str]:
    others = explanation.together_with
    company = f"with {shortened(others)}" if others else "alone"
    place = f"{printable(explanation.node)} is in wave {explanation.wave}, {company}"
    yield f"{place}: {printable(explanation.because)}"
    # A plan may have hundreds of waves with the same reason.
    for because, alike in groupby(explanation.not_earlier, key=attrgetter("because")):
        numbers = [earlier.wave for earlier in alike]
        waves = f"wave {numbers[0]}"
        if len(numbers) > 1:
            waves = f"waves {numbers[0]} to {numbers[-1]}"
        yield f"  not in {waves}: {'; '.join(map(printable, because))}"
    if explanation.arrivals:
        pods = counted(explanation.arrivals, "pod")
        yield f"By then, {pods} evicted in earlier waves will land here and be evicted again."


NOT_REHEARSED = (
    "Dry run: nothing was changed, and the API server was not asked (--dry-run=server asks it)."
)


def rehearsal_text(nodes: Sequence[Rehearsal], width: int | None) -> str:
    lines = []
    for node in nodes:
        lines += [f"✘ {printable(node.node)}  {printable(text)}" for text in node.objections]
    allowed = counted(sum(node.evictions for node in nodes), "eviction")
    objected = counted(len(lines), "objection") if lines else "no objection"
    lines.append(f"Dry run: nothing was changed; {allowed} allowed, {objected} by the API server.")
    return "\n".join(wrap(line, width) for line in lines)
