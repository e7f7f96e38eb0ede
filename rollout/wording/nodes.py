from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import assert_never

from rollout.model import finding as findings
from rollout.model.detection import UPDATE_SOURCES, Source
from rollout.model.host import UpdateStanding
from rollout.model.memory import NodeFailures
from rollout.model.progress import Outcome
from rollout.model.rivals import SELF_REBOOTS, STOPPED_BY_SETTING, Rival, SelfReboot
from rollout.model.text import counted, excerpt, joined, shell_word, shortened
from rollout.model.timestamps import elapsed, seconds_since
from rollout.model.update_checks import CheckState, service_text
from rollout.wording.words import Words, object_name, words

_MOST_NODES = 3
_MOST_CHARACTERS = 60
_DAY = 86_400
_OTHER_VERSION = "another version of rollout may be working on it"
_OTHER_SOURCES = ", ".join(
    source for source in UPDATE_SOURCES if source is not Source.UPDATE_ENGINE
)


@words.register
def _excluded_by_flag(finding: findings.ExcludedByFlag) -> Words:
    return Words(f"left out by {finding.flag}")


@words.register
def _virtual_node(_finding: findings.VirtualNode) -> Words:
    return Words("a virtual node: it has no host to reboot")


@words.register
def _other_system(finding: findings.OtherSystem) -> Words:
    return Words(f"a {finding.system.capitalize()} node: rollout reboots only Linux hosts")


@words.register
def _node_deleting(_finding: findings.NodeDeleting) -> Words:
    return Words("the Node is being deleted")


@words.register
def _node_leaving(finding: findings.NodeLeaving) -> Words:
    return Words(f"{finding.remover} is about to remove it: taint {finding.taint}")


@words.register
def _node_not_ready(finding: findings.NodeNotReady) -> Words:
    state = "its kubelet has stopped reporting" if finding.is_silent else "it is not Ready"
    return Words(joined(": ", state, finding.message))


@words.register
def _left_cordoned(finding: findings.LeftCordoned) -> Words:
    rollout = f"the unfinished rollout {finding.run_id}"
    return Words(f"left cordoned by {rollout}, in phase {finding.phase}")


@words.register
def _cordoned_by_other(finding: findings.CordonedByOther) -> Words:
    if finding.mark is None:
        fix = "to reboot it anyway and leave it cordoned, use --allow cordoned"
        return Words("cordoned manually", fix=fix, note="")
    # The mark says why it is cordoned.
    mark = words(finding.mark)
    return Words(f"cordoned; {mark.cause}", fix=mark.fix, note=mark.cause)


@words.register
def _maintained_by_other(finding: findings.MaintainedByOther) -> Words:
    cause = f"someone else has set its condition {finding.condition} to True"
    return Words(cause, fix="wait until it is False", note=finding.condition)


@words.register
def _unknown_mark(finding: findings.UnknownMark) -> Words:
    annotation = f"its annotation {finding.annotation}"
    return Words(f"{annotation} is unknown to this version of rollout", fix=_OTHER_VERSION)


@words.register
def _missing_mark(finding: findings.MissingMark) -> Words:
    return Words(f"its annotation {finding.annotation} is missing", fix=_OTHER_VERSION)


@words.register
def _invalid_mark(finding: findings.InvalidMark) -> Words:
    value = finding.value[:_MOST_CHARACTERS]
    cause = f"its annotation {finding.annotation} has the invalid value {value!r}"
    return Words(cause, fix=_OTHER_VERSION)


@words.register
def _node_paused(finding: findings.NodePaused) -> Words:
    return Words(str(finding.pause), note=finding.pause.details)


@words.register
def _paused_by_annotation(finding: findings.PausedByAnnotation) -> Words:
    by = f"by annotation {finding.annotation}"
    return Words(f"paused {by}", note=by)


@words.register
def _all_nodes_paused(finding: findings.AllNodesPaused) -> Words:
    return Words(f"all nodes are {finding.pause}")


@words.register
def _no_host(_finding: findings.NoHost) -> Words:
    return Words("no host in the inventory matches this Node")


@words.register
def _probe_failed(finding: findings.ProbeFailed) -> Words:
    return Words(finding.message, fix=finding.hint, brief=finding.brief)


@words.register
def _reboot_not_needed(finding: findings.RebootNotNeeded) -> Words:
    cause = "; ".join(finding.answers) or "no detection source is configured for it"
    if finding.detect_flag:
        return Words(cause, fix=f"to use its reboot-needed annotation, add {finding.detect_flag}")
    return Words(
        cause, fix="to reboot it anyway, use --allow idle" if finding.may_reboot_idle else ""
    )


@words.register
def _sources_silent(finding: findings.SourcesSilent) -> Words:
    cause = "; ".join(finding.answers)
    if finding.unasked_sources:
        others = ", ".join(finding.unasked_sources)
        return Words(cause, fix=f"it has {others}: add {finding.detect_flag}")
    if finding.lacks_engine:
        return Words(cause, fix=f"add another source to detect.sources: {_OTHER_SOURCES}")
    return Words(cause)


@words.register
def _other_version_runs(finding: findings.OtherVersionRuns) -> Words:
    running = finding.running or "an unknown version"
    return Words(f"it runs {running}, not {finding.version}")


@words.register
def _no_previous_version(finding: findings.NoPreviousVersion) -> Words:
    return Words(finding.answer)


@words.register
def _previous_version_unknown(finding: findings.PreviousVersionUnknown) -> Words:
    rule = f"{finding.user} ALL=(root) NOPASSWD: ALL"
    rights = f"if {finding.user} cannot run commands as root, add to /etc/sudoers.d"
    return Words(finding.answer, fix=f"check why on the host; {rights}: {rule}")


@words.register
def _previous_version_changed(finding: findings.PreviousVersionChanged) -> Words:
    now = finding.version or "an unknown version"
    return Words(f"it would go back to {now}, not to {finding.planned} as planned")


@words.register
def _held_version(finding: findings.HeldVersion) -> Words:
    if finding.by:
        cause = f"version {finding.version} has been held by {finding.by} since {finding.at}"
        return Words(cause, fix=_release_commands(finding.version))
    # A node that succeeds later leaves the list, but the hold stays.
    nodes = "nodes that later succeeded"
    if finding.nodes:
        number = counted(len(finding.nodes), "node")
        nodes = f"{number} ({shortened(finding.nodes, _MOST_NODES)})"
    cause = (
        f"version {finding.version} is held: it failed on {nodes}, most recently at {finding.at}"
    )
    return Words(cause, fix=_release_commands(finding.version))


@words.register
def _uncounted_version(finding: findings.UncountedVersion) -> Words:
    cause = (
        f"version {finding.version} is held: its failures cannot be recorded because"
        f" {finding.others} other versions are already held; release some of them"
    )
    return Words(cause, fix=_release_commands(finding.version))


@words.register
def _maybe_held_version(finding: findings.MaybeHeldVersion) -> Words:
    held = words(finding.held)
    return Words(f"{held.cause}; it may be the version staged on this node", fix=held.fix)


def _release_commands(version: str) -> str:
    return f"`rollout release {shell_word(version)}`, or use --allow held"


@words.register
def _no_evidence(finding: findings.NoEvidence) -> Words:
    version = finding.version
    subject = f"version {version}" if version else "an unknown version"
    known = shortened(finding.versions_with_evidence) or "none"
    cause = f"{subject} has no evidence from {finding.cluster} (evidence exists for: {known})"
    return Words(joined("; ", cause, *finding.why_others_rejected))


@words.register
def _evidence_short(finding: findings.EvidenceShort) -> Words:
    subject = f"version {finding.version} is not verified in {finding.cluster} yet"
    failures = _failures_clause(finding.failed) if finding.failed else ""
    nodes = ""
    if finding.nodes:
        nodes = f"{finding.nodes.reached} of {counted(finding.nodes.needed, 'node')}"
    hours = ""
    if finding.hours:
        hours = f"{finding.hours.reached} of {finding.hours.needed} h"
    return Words(f"{subject}: {joined(', ', failures, nodes, hours)}")


def _failures_clause(failed: Mapping[str, str]) -> str:
    name, why = next(iter(failed.items()))
    return f"{counted(len(failed), 'node')} failed there ({excerpt(name)}: {excerpt(why)})"


@words.register
def _node_backing_off(finding: findings.NodeBackingOff) -> Words:
    failure = failure_clause(finding.failures)
    cause = f"it {failure}; it will not be rebooted again until {finding.until}"
    return Words(cause, fix=f"`rollout release --node {finding.node}` ends this")


def failure_clause(failures: NodeFailures, when: str = "") -> str:
    """`when` replaces the time."""
    times = f", {failures.failures} times in a row" if failures.failures > 1 else ""
    when = when or f"at {failures.at}"
    if failures.outcome == Outcome.SUCCEEDED:
        return f"was rebooted {when}, but its version did not change{times}"
    if failures.outcome == Outcome.ABORTED:
        return f"canceled its reboot {when}{times}"
    if failures.outcome == Outcome.SKIPPED:
        return f"was returned to service {when}, because its pods had not completed{times}"
    return f"failed {when} ({failures.outcome}{times})"


@words.register
def _no_sudo(finding: findings.NoSudo) -> Words:
    return Words(finding.refusal or f"{finding.user} is not allowed to run systemctl reboot")


@words.register
def _shutdown_inhibited(finding: findings.ShutdownInhibited) -> Words:
    return Words(f"its shutdown is blocked by {finding.holder}", fix="see systemd-inhibit --list")


@words.register
def _reboot_blocked(finding: findings.RebootBlocked) -> Words:
    return Words(finding.answer)


@words.register
def _shutdown_scheduled(finding: findings.ShutdownScheduled) -> Words:
    return Words(finding.schedule, fix="`shutdown -c` on the host cancels it")


_MEANING_OF_MARK = {
    Rival.FLUO: "another reboot coordinator (FLUO) is handling it",
    Rival.CLUO: "another reboot coordinator (CLUO) is handling it",
    Rival.KURED: "kured is rebooting it",
    Rival.CRO: "the coreos-reboot-operator is rebooting it",
    Rival.KRM: "the Kubernetes reboot manager is rebooting it",
    Rival.TUPPR: "tuppr is upgrading it",
    Rival.MCO: "the machine-config-operator is updating it",
    Rival.KAIROS: "the Kairos operator has cordoned it",
    Rival.NODEWRIGHT: "NodeWright is changing it",
    Rival.NVSENTINEL: "NVSentinel is repairing it",
    Rival.MAINTENANCE_ORCHESTRATOR: "the node-maintenance-orchestrator is maintaining it",
}


@words.register
def _rival_mark(finding: findings.RivalMark) -> Words:
    marks = ", ".join(finding.marks)
    state = f"{marks} is {finding.value}" if finding.value else marks
    # Commands come last, to be copied.
    cleanup = f"or, if {finding.rival} is no longer installed, run: {'; '.join(finding.commands)}"
    fix = f"use --allow {finding.rival}, {cleanup}"
    return Words(f"{_MEANING_OF_MARK[finding.rival]}: {state}", fix=fix)


@words.register
def _rival_pod(finding: findings.RivalPod) -> Words:
    cause = f"the system-upgrade-controller is upgrading it (pod {finding.pod})"
    return Words(cause, fix=f"wait until that pod has ended, or use --allow {finding.rival}")


@words.register
def _rival_on_host(finding: findings.RivalOnHost) -> Words:
    match finding.rival:
        case Rival.LOCKSMITHD:
            cause = "locksmithd runs on the host and reboots it by itself"
            stop = "run `sudo systemctl mask --now locksmithd` on it"
        case Rival.ZINCATI:
            cause = f"Zincati runs on the host and reboots it (strategy {finding.strategy})"
            mask = "sudo systemctl mask --now zincati"
            stop = f"make Zincati use `rollout fleetlock serve`, run `{mask}` on the host"
        case SelfReboot():
            cause, stop = SELF_REBOOTS[finding.rival]
            if finding.rival not in STOPPED_BY_SETTING:
                stop = f"run `{stop}` on it"
        case _:
            raise NotImplementedError(finding.rival)
    return Words(cause, fix=f"{stop}, or use --allow {finding.rival}")


@words.register
def _own_node_only(finding: findings.OwnNodeOnly) -> Words:
    cause = f"{_rollout_runs_here(finding.pod)}, which cannot be scheduled on another node"
    return Words(f"{cause}: run rollout from outside the cluster")


@words.register
def _own_node_deferred(finding: findings.OwnNodeDeferred) -> Words:
    return Words(f"{_rollout_runs_here(finding.pod)}: the next run reboots it, from another node")


def _rollout_runs_here(pod_name: str) -> str:
    pod = f"the pod {pod_name}" if pod_name else "a pod"
    return f"rollout itself runs on this node, in {pod}"


@words.register
def _drain_blocked(finding: findings.DrainBlocked) -> Words:
    return Words(f"left out by --skip blocked: {object_name(finding.object)} {finding.message}")


def check_trouble(update: UpdateStanding, now: datetime | None) -> str:
    match update.checks:
        case CheckState.MASKED | CheckState.STOPPED | CheckState.FAILED | CheckState.DISABLED:
            return service_text(update.check_unit, update.checks)
        case CheckState.STALE:
            return _last_check(update, now)
        case CheckState.WORKING | CheckState.UNKNOWN:
            return ""
        case _:
            assert_never(update.checks)


def _last_check(update: UpdateStanding, now: datetime | None) -> str:
    if not update.last_checked:
        return f"{update.check_unit} has not completed a check since it started"
    if now is None:
        return f"last checked at {update.last_checked}"
    seconds = seconds_since(update.last_checked, now)
    ago = counted(int(seconds // _DAY), "day") if seconds >= _DAY else elapsed(seconds)
    return f"last checked {ago} ago"


def rescue_text(problem: str, output: Sequence[str]) -> str:
    """Without a `problem`, `reboot.rescue` succeeded."""
    return joined(": ", problem or "reboot.rescue succeeded", "; ".join(output))
