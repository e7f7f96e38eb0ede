import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

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
from rollout.model.progress import rightly_left_out, wrongly_left_out
from rollout.model.text import (
    counted,
    grouped,
    joined,
    natural_key,
    or_dash,
    printable,
    shell_word,
    shortened,
    version_change,
)
from rollout.model.timestamps import elapsed, parse_timestamp
from rollout.planning.plan.explanation import Explanation, PodFate
from rollout.planning.plan.rules import relaxed_rules
from rollout.report.columns import Column, Row, table_text, wrap
from rollout.report.rules import rule_lines
from rollout.report.sentences import absence_counts, plan_extent
from rollout.wording.nodes import check_trouble
from rollout.wording.words import object_name

_COLUMNS = (
    Column("WAVE", right=True),
    Column("NODES", wraps=True),
    Column("ZONES", drop_order=1),
    Column("PODS", drop_order=2, right=True),
    Column("TIME", drop_order=3, right=True),
    Column("VERSION"),
    Column("NOTE", note=True),
)
_MOST_ROWS = 20
_MOST_NAMES_OF_WAVE = 20
_MOST_NAMES_OF_GROUP = 8
_MOST_NOTES = 3
_FEWEST_ZONES_AS_ALL = 3
# The other states have a warning.
_WITHOUT_LABEL = (
    UpdateState.UP_TO_DATE,
    UpdateState.ROLLED_BACK,
    UpdateState.CHECK_FAILED,
    UpdateState.NOT_CHECKING,
)
# A plan does not tell verified updates from downloading ones.
_LABELS: Mapping[str, str] = {UpdateState.UPDATING: "downloading"}
_SEE_DOCTOR = " → rollout doctor"
_SHOWN_IN_TABLE_OR_HEADING = ("--max-unavailable", "--rollback")
# For a plan that is too long for its terminal.
_BRIEF_FINDINGS = 3


def plan_text(
    plan: RolloutPlan,
    *,
    zone_by_node: Mapping[str, str],
    width: int | None = None,
    now: datetime | None = None,
    cluster_name: str = "",
    why_blocked: str = "",
    unfinished_rollout: str = "",
    next_step: str = "",
) -> str:
    """Render the whole plan; without a `width`, with all rows and columns.

    `why_blocked` and `unfinished_rollout`, which is about another rollout, are sentences. Rules are
    shown only with `now`, because windows depend on the time.
    """
    is_wide = width is None
    if unfinished_rollout:
        plan = _without_nodes_of_unfinished(plan)
    if plan.waves:
        table = table_text(_COLUMNS, _wave_rows(plan, zone_by_node, width), width)
        wave_lines = [_heading(plan, cluster_name), "", table]
        conclusion = estimate_text(plan)
    else:
        wave_lines = []
        conclusion = no_nodes_text(plan)
    notes = [*warning_lines(plan, is_wide=is_wide), *_left_out_lines(plan, is_wide=is_wide)]
    if now:
        notes += rule_lines(plan.policy, now)
    obstacles = [f"✘ {line}" for line in finding_lines(plan.blockers)]
    obstacles += [line for line in (why_blocked, unfinished_rollout) if line]
    next_lines = ["Next:", f"    {next_step}"] if next_step else []
    blocks = (wave_lines, notes, [conclusion], obstacles, next_lines)
    texts = ["\n".join(lines) for lines in blocks]
    return wrap(joined("\n\n", *texts), width)


def _without_nodes_of_unfinished(plan: RolloutPlan) -> RolloutPlan:
    """An unfinished rollout has its own sentence."""
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
    zone_by_node: Mapping[str, str],
    width: int | None,
    height: int | None,
    cluster_name: str,
    next_step: str,
    whole_command: str,
    control_plane: Container[str],
) -> str:
    """Render a plan above a question, in at most `height` lines.

    If the plan is longer, `whole_command` shows the rest. `next_step` is for plans without a
    question.
    """
    if width is None or not plan.waves:
        return plan_text(
            plan,
            zone_by_node=zone_by_node,
            width=width,
            cluster_name=cluster_name,
            next_step=next_step,
        )
    heading = wrap(_heading(plan, cluster_name), width)
    findings = [*warning_lines(plan), *_left_out_lines(plan, is_wide=False)]
    relaxed_flags = _relaxed_flags(plan)
    estimate = estimate_text(plan)

    def screen(rows: Sequence[Row], notes: Sequence[str], *last_lines: str) -> str:
        lines = (relaxed_flags, *notes, estimate, *last_lines)
        wrapped_lines = [wrap(line, width) for line in lines if line]
        return "\n".join((heading, table_text(_COLUMNS, rows, width), *wrapped_lines))

    whole_screen = screen(_wave_rows(plan, zone_by_node, width), findings)
    if height is None or _line_count(whole_screen) <= height:
        return whole_screen
    notes = findings[:_BRIEF_FINDINGS]
    hidden_count = len(findings) - len(notes)
    if hidden_count:
        notes.append(f"! {counted(hidden_count, 'more finding')}")
    last_lines = ("This is only part of the plan. To see all of it:", f"    {whole_command}")
    most_rows = height - _line_count(screen((), notes, *last_lines))
    rows = _wave_rows(plan, zone_by_node, width, most_rows=most_rows, control_plane=control_plane)
    return screen(rows, notes, *last_lines)


def _line_count(text: str) -> int:
    return text.count("\n") + 1


def consequence_text(plan: RolloutPlan) -> str:
    most_at_once = max(_most_at_once(wave) for wave in plan.waves)
    pace = f"at most {most_at_once} at once" if most_at_once > 1 else "one at a time"
    seconds = plan.estimate.seconds
    takes = f", in about {_in_words(seconds)}" if seconds else ""
    nodes = counted(plan.summary.nodes, "node")
    version = printable(plan.policy.rollback)
    if version:
        return f"This holds {version}, and drains, reboots and rolls back {nodes}, {pace}{takes}."
    return f"This drains and reboots {nodes}, {pace}{takes}."


def _most_at_once(wave: Wave) -> int:
    if wave.rolling:
        return min(wave.rolling.in_flight, len(wave.nodes))
    return len(wave.nodes)


def _relaxed_flags(plan: RolloutPlan) -> str:
    rules = [
        rule
        for rule in relaxed_rules(plan.policy)
        if rule.setting not in _SHOWN_IN_TABLE_OR_HEADING
    ]
    flags = "; ".join(rule.flag for rule in rules)
    return f"! non-default options: {printable(flags)}" if flags else ""


def file_text(plan: RolloutPlan, file: str, width: int | None) -> str:
    name = f"{printable(file)}, made {printable(plan.created_at)}: {plan_extent(plan)}"
    lines = [f"{name}, on {printable(plan.cluster.server)}"]
    lines += [f"! {printable(str(rule))}" for rule in relaxed_rules(plan.policy)]
    return "\n".join(wrap(line, width) for line in lines)


def _heading(plan: RolloutPlan, cluster_name: str) -> str:
    version_changes = _version_changes(plan.nodes)
    # The table has a column for several.
    only_change = f"   {version_changes[0]}" if len(version_changes) == 1 else ""
    cluster = printable(cluster_name or plan.cluster.server)
    nodes = counted(plan.summary.nodes, "node")
    subject = f"Rollback of {nodes}" if plan.policy.rollback else nodes
    return f"{subject} in {cluster}{only_change}"


def warning_lines(plan: RolloutPlan, *, is_wide: bool = False) -> Iterator[str]:
    causes_and_nodes = []
    for exclusion in plan.excluded:
        if exclusion.reason.is_trouble:
            message = exclusion.message if is_wide else _brief_cause(plan, exclusion)
            causes_and_nodes.append(((exclusion.reason, message), exclusion.node))
    for (reason, message), names in grouped(causes_and_nodes).items():
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
            yield f"does not get updates: {trouble}", exclusion.node


def _brief_cause(plan: RolloutPlan, exclusion: Exclusion) -> str:
    if exclusion.reason is not ExclusionReason.UNREACHABLE:
        return exclusion.message
    cause = exclusion.brief or exclusion.message
    # Without waves, the screen ends with this command.
    return f"{cause}{_SEE_DOCTOR}" if plan.waves else cause


def _left_out_lines(plan: RolloutPlan, *, is_wide: bool) -> Iterator[str]:
    """Yield `Left out: w-1, w-2 (paused)`, or a line for each cause."""
    exclusions = [entry for entry in plan.excluded if not entry.reason.is_trouble]
    if is_wide:
        nodes_by_cause = grouped(
            ((entry.reason, entry.message), entry.node) for entry in exclusions
        )
        for (reason, message), names in nodes_by_cause.items():
            yield f"· {shortened(names)}  {reason}: {printable(message)}"
        return
    nodes_by_label = grouped((_exclusion_label(entry), entry.node) for entry in exclusions)
    groups = [f"{shortened(names)} ({label})" for label, names in nodes_by_label.items() if label]
    if groups:
        yield f"Left out: {'; '.join(groups)}"


def _exclusion_label(exclusion: Exclusion) -> str:
    if exclusion.reason is not ExclusionReason.NO_UPDATE:
        return exclusion.reason
    update = exclusion.update
    if update is None or update.state in _WITHOUT_LABEL:
        return ""
    if update.state is UpdateState.BEHIND:
        return f"behind: the newest version in the cluster is {update.newest_version}"
    return _LABELS.get(update.state, update.state)


def _wave_rows(
    plan: RolloutPlan,
    zone_by_node: Mapping[str, str],
    width: int | None,
    *,
    most_rows: int = _MOST_ROWS,
    control_plane: Container[str] | None = None,
) -> Sequence[Row]:
    if width is None:
        return [_wide_row(wave, zone_by_node) for wave in plan.waves]
    all_zones = {zone_by_node.get(node.name, "") for node in plan.nodes}
    shows_versions = len(_version_changes(plan.nodes)) > 1
    return [
        _group_row(group, zone_by_node, all_zones, shows_versions=shows_versions)
        for group in _group_similar_waves(plan.waves, most_rows, control_plane)
    ]


def _group_similar_waves(
    waves: Sequence[Wave], most_groups: int, control_plane: Container[str] | None
) -> Sequence[Sequence[Wave]]:
    """Group adjacent waves that look the same.

    Above `most_groups`, group by size. If that is not enough, keep only the `control_plane` apart.
    """

    def has_control_plane(wave: Wave) -> bool:
        return control_plane is not None and any(node.name in control_plane for node in wave.nodes)

    similarities: list[Callable[[Wave], object]] = [_WaveLook.of, _WaveSize.of]
    if control_plane is not None:
        similarities.append(has_control_plane)
    groups: list[list[Wave]] = []
    for similarity in similarities:
        groups = [list(group) for _, group in groupby(waves, key=similarity)]
        if len(groups) <= most_groups:
            return groups
    return groups


def _wide_row(wave: Wave, zone_by_node: Mapping[str, str]) -> Row:
    nodes = _nodes_in_order(wave)
    return (
        str(wave.index),
        _names_with_delays(wave),
        " ".join(_zones_of(nodes, zone_by_node)).strip(),
        str(_pods_to_evict(wave)),
        _rough_time(wave.estimate.seconds),
        "\n".join(_version_changes(nodes)),
        printable(wave.because),
    )


def _group_row(
    group: Sequence[Wave],
    zone_by_node: Mapping[str, str],
    all_zones: AbstractSet[str],
    *,
    shows_versions: bool,
) -> Row:
    nodes: list[PlannedNode] = []
    for wave in group:
        nodes += _nodes_in_order(wave)
    zones = _zones_of(nodes, zone_by_node)
    has_all_zones = len(zones) >= _FEWEST_ZONES_AS_ALL and all_zones == set(zones)
    indexes = str(group[0].index)
    if len(group) > 1:
        indexes = f"{group[0].index}\N{EN DASH}{group[-1].index}"
    # Notes of many waves would fill the screen.
    waves_with_note = group[:1] if len(group) > _MOST_ROWS else group
    notes = list(dict.fromkeys(printable(wave.note) for wave in waves_with_note if wave.note))
    return (
        indexes,
        _names_or_count(group, nodes),
        "all" if has_all_zones else " ".join(zones).strip(),
        str(sum(map(_pods_to_evict, group))),
        _rough_time(sum(wave.estimate.seconds for wave in group)),
        "\n".join(_version_changes(nodes)) if shows_versions else "",
        "; ".join(notes) if len(notes) <= _MOST_NOTES else "",
    )


def _zones_of(nodes: Sequence[PlannedNode], zone_by_node: Mapping[str, str]) -> Sequence[str]:
    return list(dict.fromkeys(printable(zone_by_node.get(node.name, "")) for node in nodes))


def _rough_time(seconds: float) -> str:
    return rough_duration(seconds) if seconds else ""


class _WaveLook(NamedTuple):
    # None for a wave of one node; keeps the other waves apart.
    own_index: int | None
    note: str
    version_changes: Sequence[str]
    pods: int
    time: str

    @classmethod
    def of(cls, wave: Wave) -> "_WaveLook":
        is_single = len(wave.nodes) == 1 and not wave.rolling
        return cls(
            own_index=None if is_single else wave.index,
            note=wave.note,
            version_changes=_version_changes(wave.nodes),
            pods=_pods_to_evict(wave),
            time=rough_duration(wave.estimate.seconds),
        )


class _WaveSize(NamedTuple):
    # None unless the wave is rolling; keeps rolling waves apart.
    own_index: int | None
    nodes: int
    limit: str
    version_changes: Sequence[str]

    @classmethod
    def of(cls, wave: Wave) -> "_WaveSize":
        own_index = wave.index if wave.rolling else None
        return cls(own_index, len(wave.nodes), wave.limit, _version_changes(wave.nodes))


def _names_with_delays(wave: Wave) -> str:
    """Return `w-1, w-2 (+5m00s)`."""
    delays = wave.rolling.begins if wave.rolling else {}
    names = []
    for node in wave.nodes:
        delay = delays.get(node.name)
        delay_text = f" (+{elapsed(delay)})" if delay else ""
        names.append(f"{printable(node.name)}{delay_text}")
    return ", ".join(names)


def _nodes_in_order(wave: Wave) -> Sequence[PlannedNode]:
    if wave.rolling:
        return wave.nodes
    return sorted(wave.nodes, key=lambda node: natural_key(node.name))


def _names_or_count(group: Sequence[Wave], nodes: Sequence[PlannedNode]) -> str:
    names = [printable(node.name) for node in nodes]
    if len(group) == 1:
        return shortened(names, _MOST_NAMES_OF_WAVE, " ")
    sizes = {len(wave.nodes) for wave in group}
    largest = max(sizes)
    if largest == 1 and len(names) <= _MOST_NAMES_OF_GROUP:
        return ", then ".join(names)
    if largest == 1:
        return f"{len(nodes)} nodes, one after another"
    up_to = "up to " if len(sizes) > 1 else ""
    return f"{len(nodes)} nodes, {up_to}{largest} per wave"


def _pods_to_evict(wave: Wave) -> int:
    return sum(node.evict for node in wave.nodes)


def _version_changes(nodes: Iterable[PlannedNode]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(planned_version, nodes)))


_MINUTE = 60
_HOUR = 3600


def estimate_text(plan: RolloutPlan) -> str:
    parts = []
    if plan.estimate.seconds:
        minutes = plan.estimate.assumed_reboot // _MINUTE
        assumption = f" (no history yet: assuming {minutes} min per reboot)" if minutes else ""
        parts.append(f"About {_in_words(plan.estimate.seconds)}{assumption}.")
    pods = plan.summary.pods_to_move
    if pods:
        parts.append(f"{counted(pods, 'pod')} will be evicted.")
    awaited_count = sum(node.wait for node in plan.nodes)
    if awaited_count:
        awaited_pods = counted(awaited_count, "pod")
        longest = max(node.wait_seconds for node in plan.nodes)
        parts.append(f"Drains wait up to {_in_words(longest)} for {awaited_pods} to complete.")
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
    unwanted_version = plan.policy.rollback
    not_done = wrongly_left_out(plan.excluded)
    left_out_counts = rightly_left_out(plan.excluded)
    are_all_without_update = not not_done and set(left_out_counts) == {ExclusionReason.NO_UPDATE}
    if are_all_without_update and unwanted_version:
        nodes = counted(len(plan.excluded), "node")
        return f"Nothing to do: none of {nodes} runs {printable(unwanted_version)}."
    if are_all_without_update:
        return _nothing_staged(plan.excluded)
    lead = "No node is planned" if not_done else "Nothing to do: no node is planned"
    sentence = f"{joined('; ', lead, absence_counts(not_done, left_out_counts))}."
    return f"{sentence} {_hold_hint(unwanted_version)}" if unwanted_version else sentence


def _hold_hint(version: str) -> str:
    # A rollback with nodes holds the version itself.
    why = "There is no node to roll back, so this does not hold the version."
    return f"{why} To hold it anyway, run: rollout hold {shell_word(version)}"


def _nothing_staged(excluded: Sequence[Exclusion]) -> str:
    nodes = counted(len(excluded), "node")
    if all(entry.update and entry.update.is_current for entry in excluded):
        verb = "is" if len(excluded) == 1 else "are"
        return f"Nothing to do: {nodes} {verb} up to date."
    states = Counter(entry.update.state for entry in excluded if entry.update)
    counts = [
        f"{states[state]} {_LABELS.get(state, state).replace('-', ' ')}"
        for state in UpdateState
        if states[state]
    ]
    return f"Nothing to do: no update is staged on {joined(': ', nodes, ', '.join(counts))}."


def planned_version(node: PlannedNode) -> str:
    if not node.staged:
        return f"{or_dash(node.running_version)} (reboot only)"
    return version_change(node.running_version, node.staged_version, node.detected_by)


_NOT_RESOLVED_BY_SKIPPING = (BlockerKind.RIVAL, BlockerKind.NODES_UNAVAILABLE)
# Controllers such as a ReplicaSet add this suffix.
_REPLICA_SUFFIX = re.compile(r"(-[a-z0-9]{6,10})?-[a-z0-9]{5}$|-\d+$")


def blocked_line(blockers: Sequence[Blocker]) -> str:
    if not blockers:
        return ""
    nodes_to_skip = {
        blocker.node for blocker in blockers if blocker.kind not in _NOT_RESOLVED_BY_SKIPPING
    }
    subject = "this node" if len(nodes_to_skip) == 1 else f"these {len(nodes_to_skip)} nodes"
    fix = f" To leave {subject} out, use --skip blocked." if nodes_to_skip else ""
    return f"Blocked: apply will not start.{fix}"


def finding_lines(findings: Sequence[Blocker] | Sequence[PlanWarning]) -> Iterator[str]:
    """Group by message. A warning about several objects names no nodes."""
    for alike in grouped((finding.message, finding) for finding in findings).values():
        first = alike[0]
        objects = list(
            dict.fromkeys(entry.object for entry in alike if entry.object != f"node/{entry.node}")
        )
        names = sorted({entry.node for entry in alike if entry.node}, key=natural_key)
        nodes = shortened(names, most=3)
        if isinstance(first, PlanWarning) and len(objects) > 1:
            nodes = ""
        yield joined("  ", nodes, _subject(objects), _cause_and_fix(first))


def _cause_and_fix(finding: Blocker | PlanWarning) -> str:
    if isinstance(finding, Blocker) and finding.fix:
        return f"{printable(finding.cause)} → {printable(finding.fix)}"
    return printable(finding.message)


def _subject(objects: Sequence[str]) -> str:
    if len(objects) > 1 and all(name.startswith("pod/") for name in objects):
        owners = dict.fromkeys(
            _REPLICA_SUFFIX.sub("", name.removeprefix("pod/")) for name in objects
        )
        return f"{shortened(list(owners), most=3)} ({len(objects)} pods)"
    return shortened([object_name(name) for name in objects], most=3)


_POD_COLUMNS = tuple(map(Column, ("POD", "ACTION", "REASON", "BUDGETS", "NOTE")))


def explanation_text(explanation: Explanation, estimate: TimeEstimate) -> str:
    is_planned = explanation.wave > 0
    if not is_planned:
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
    other_nodes = explanation.together_with
    company = f"with {shortened(other_nodes)}" if other_nodes else "alone"
    place = f"{printable(explanation.node)} is in wave {explanation.wave}, {company}"
    yield f"{place}: {printable(explanation.because)}"
    # Hundreds of waves may have the same reasons.
    for reasons, earlier_waves in groupby(explanation.not_earlier, key=attrgetter("because")):
        numbers = [earlier.wave for earlier in earlier_waves]
        waves = f"wave {numbers[0]}"
        if len(numbers) > 1:
            waves = f"waves {numbers[0]} to {numbers[-1]}"
        yield f"  not in {waves}: {'; '.join(map(printable, reasons))}"
    if explanation.arrivals:
        pods = counted(explanation.arrivals, "pod")
        where = "evicted in earlier waves will be running on this node"
        yield f"By then, {pods} {where}, and will be evicted again."


NOT_REHEARSED = (
    "Dry run: nothing was changed. To check each write with the API server, use --dry-run=server."
)


def rehearsal_text(rehearsals: Sequence[Rehearsal], width: int | None) -> str:
    objections = []
    for rehearsal in rehearsals:
        subject = f"✘ {printable(rehearsal.node)}"
        objections += [f"{subject}  {printable(text)}" for text in rehearsal.objections]
    allowed = counted(sum(rehearsal.evictions for rehearsal in rehearsals), "eviction")
    rejected = counted(len(objections), "request") if objections else "no requests"
    totals = (
        f"Dry run: nothing was changed. The API server would allow {allowed} and reject {rejected}."
    )
    return "\n".join(wrap(line, width) for line in (*objections, totals))
