"""Makes and judges evidence that a version works, for other clusters."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct, field

from rollout.errors import InputError
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.finding import EvidenceShort, NoEvidence, Shortfall
from rollout.model.json_text import DECODE_ERRORS
from rollout.model.memory import Memory
from rollout.model.node_marks import last_result
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import excerpt, is_version
from rollout.model.timestamps import elapsed, parse_timestamp, whole_second

FORMAT_VERSION = "1.0"
KIND = "node-rollout-evidence"
# Clusters' clocks differ by seconds.
_LATE_CLOCK = timedelta(minutes=5)
_HOUR = 3600


class ProvingCluster(Struct, frozen=True):
    uid: str
    name: str = ""


class Evidence(Struct, frozen=True):
    """A document that says on which nodes a version works.

    Times are RFC 3339 in UTC, by that cluster's API server.
    """

    version: str
    cluster: ProvingCluster
    made_at: str
    # Rebooted into the version, proved, and Ready at `made_at`.
    nodes: tuple[str, ...]
    # What is wrong with other nodes.
    failed: Mapping[str, str] = field(default_factory=dict)
    first_reboot: str = ""
    last_reboot: str = ""
    # From the last reboot to `made_at`.
    hours: float = 0.0
    format_version: str = FORMAT_VERSION
    kind: str = KIND


class EvidenceRules(Struct, frozen=True):
    # Name or UID.
    cluster: str
    nodes: int
    hours: int
    max_age: Duration


def make_evidence(
    version: str, nodes: Sequence[Node], memory: Memory, cluster: ProvingCluster, now: datetime
) -> Evidence:
    """Return the evidence for a version, by default the last one rebooted into.

    Raises `InputError` if no node proves it.
    """
    version = version or _last_proved_version(nodes)
    nodes_rebooted_into_it = [node for node in nodes if _proved_version(node) == version]
    proving_nodes = [node for node in nodes_rebooted_into_it if _is_ready_with(version, node)]
    proving_names = {node.name for node in proving_nodes}
    reboots = _reboot_times(proving_nodes)
    if not is_version(version) or not reboots:
        raise InputError(
            f"no node here was rebooted into {version or 'another version'} and is running it",
            hint="Export evidence from a cluster in which a rollout has succeeded.",
        )
    reason_by_failed_node = _failed_nodes(version, nodes, memory)
    failures = memory.versions.get(version)
    if failures and failures.held_by:
        # A person has found the version bad.
        reason_by_failed_node |= dict.fromkeys(sorted(proving_names), "this version is held")
    for node in nodes_rebooted_into_it:
        if node.name not in proving_names:
            reason_by_failed_node[node.name] = "not Ready, or runs another version"
    last_reboot = reboots[-1]
    return Evidence(
        version=version,
        cluster=cluster,
        made_at=whole_second(now),
        nodes=tuple(sorted(proving_names)),
        failed=reason_by_failed_node,
        first_reboot=whole_second(reboots[0]),
        last_reboot=whole_second(last_reboot),
        hours=round((now - last_reboot).total_seconds() / _HOUR, 1),
    )


def _is_ready_with(version: str, node: Node) -> bool:
    # 4081.2.0 is neither 14081.2.0 nor 4081.2.0.1.
    named = re.search(rf"(?<![\w.]){re.escape(version)}(?![\w.])", node.os_image)
    return node.is_ready and named is not None


def _reboot_times(nodes: Iterable[Node]) -> list[datetime]:
    times = (parse_timestamp(last_result(node).get("at", "")) for node in nodes)
    return sorted(filter(None, times))


def _failed_nodes(version: str, nodes: Iterable[Node], memory: Memory) -> dict[str, str]:
    failures = memory.versions.get(version)
    failed_nodes = failures.nodes if failures else ()
    reason_by_node = dict.fromkeys(failed_nodes, "failed with this version")
    for node in nodes:
        reason = why_failed(node, version)
        if reason:
            reason_by_node[node.name] = reason
    return reason_by_node


def _proved_version(node: Node) -> str | None:
    result = last_result(node)
    if result.get("outcome") != Outcome.SUCCEEDED:
        return None
    return result.get("version")


def _last_proved_version(nodes: Sequence[Node]) -> str:
    results = map(last_result, nodes)
    succeeded = [result for result in results if result.get("outcome") == Outcome.SUCCEEDED]
    latest = max(succeeded, key=lambda result: result.get("at", ""), default={})
    return latest.get("version", "")


VERSION_FAILURES: Mapping[str, str] = {
    Outcome.ROLLED_BACK: "rolled back from this version",
    Outcome.NOT_BACK: "did not come back with this version",
    Outcome.NOT_READY: "not Ready with this version",
    Outcome.CHECK_FAILED: "failed its checks with this version",
}


def why_failed(node: Node, version: str) -> str:
    result = last_result(node)
    outcome = result.get("failed_as", "")
    failed_version = result.get("failed_version", "")
    if not failed_version:
        # Older results do not name the failed version.
        outcome = result.get("outcome", "")
        if outcome == Outcome.ROLLED_BACK:
            failed_version = result.get("from", "")
        elif node.annotations.get(marks.PHASE) == Phase.FAILED:
            failed_version = node.annotations.get(marks.STAGED_VERSION, "")
    if failed_version != version:
        return ""
    return VERSION_FAILURES.get(outcome, "")


class ProvenVersions(Struct, frozen=True):
    rules: EvidenceRules
    documents: Mapping[str, Evidence] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def why_unproven(self, version: str) -> NoEvidence | EvidenceShort | None:
        cluster = self.rules.cluster
        document = self.documents.get(version)
        if document is None:
            return NoEvidence(version, cluster, tuple(sorted(self.documents)), self.problems)
        proving_nodes = set(document.nodes) - set(document.failed)
        short_of_nodes = None
        if len(proving_nodes) < self.rules.nodes:
            short_of_nodes = Shortfall(len(proving_nodes), self.rules.nodes)
        short_of_hours = None
        hours = _hours_proven(document)
        if hours < self.rules.hours:
            short_of_hours = Shortfall(max(0, int(hours)), self.rules.hours)
        is_proven = not (short_of_nodes or short_of_hours or document.failed)
        if is_proven:
            return None
        return EvidenceShort(version, cluster, document.failed, short_of_nodes, short_of_hours)


def _hours_proven(document: Evidence) -> float:
    made_at = parse_timestamp(document.made_at)
    last_reboot = parse_timestamp(document.last_reboot)
    if made_at is None or last_reboot is None:
        return 0
    return (made_at - last_reboot).total_seconds() / _HOUR


def read_evidence(content: bytes) -> Evidence:
    """Raise a `ValueError` that says why the document is no evidence."""
    try:
        document = msgspec.json.decode(content, type=Evidence)
    except DECODE_ERRORS as error:
        raise ValueError(f"it is not an evidence document: {excerpt(str(error))}") from error
    major = document.format_version.partition(".")[0]
    own_major = FORMAT_VERSION.partition(".")[0]
    if document.kind != KIND or major != own_major:
        found = excerpt(f"{document.kind} {document.format_version}", 60)
        raise ValueError(f"it is {found}, and this program reads {KIND} {FORMAT_VERSION}")
    if not is_version(document.version):
        raise ValueError(f"{excerpt(document.version)!r} is not a version")
    return document


def why_not_accepted(
    document: Evidence,
    rules: EvidenceRules,
    *,
    own_cluster_uid: str,
    latest_by_version: Mapping[str, str],
    now: datetime | None,
) -> str:
    """Return why a signed document does not count, or empty.

    `latest_by_version` has the times of documents that counted.
    """
    cluster = document.cluster
    if rules.cluster not in (cluster.uid, cluster.name):
        name = excerpt(cluster.name or cluster.uid)
        return f"it is from the cluster {name}, not from {rules.cluster}"
    if cluster.uid == own_cluster_uid:
        return "it was created in this cluster"
    return _why_untimely(document, rules, latest_by_version.get(document.version, ""), now)


def _why_untimely(
    document: Evidence, rules: EvidenceRules, latest: str, now: datetime | None
) -> str:
    made_at = parse_timestamp(document.made_at)
    if made_at is None:
        return "it does not say when it was created"
    if now is None:
        return "the API server did not report its time"
    if made_at > now + _LATE_CLOCK:
        return f"it was created at {document.made_at}, in the future"
    age_seconds = (now - made_at).total_seconds()
    if age_seconds > rules.max_age:
        age = elapsed(age_seconds)
        max_age = elapsed(rules.max_age)
        return f"it is stale: created {age} ago, and evidence.max-age is {max_age}"
    latest_at = parse_timestamp(latest)
    if latest_at is not None and made_at < latest_at:
        return (
            f"it was created at {document.made_at}, but a later one, created at {latest}, was"
            " read before"
        )
    return ""
