"""One row a node: what `rollout status` shows, field for field its JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rollout.model.cluster import Node
from rollout.model.detection import Detection, Source
from rollout.model.host import Host, HostObservation, LoggedInUser, ProbeFailure
from rollout.model.memory import seconds_since
from rollout.model.node_marks import deferral, is_deferred, last_result
from rollout.model.plan import Exclusion, ExclusionReason
from rollout.model.policy import Policy, Pool
from rollout.model.progress import Outcome, Phase
from rollout.model.reboot_request import unasked
from rollout.model.text import elapsed, natural_key
from rollout.planning.eligibility.candidates import Candidate, exclusion
from rollout.planning.eligibility.memory import Rules, resting_until
from rollout.planning.eligibility.pools import pools_of

_ROLLED_BACK = "rolled back from"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's state. `reason` is why it would not be part of a plan; `error` why its host gave no facts.

    `pool` is the settings file's that it belongs to; empty where there are none. `failures` is how often it failed
    since it last succeeded, `retry_after` when an unattended rollout tries it again (RFC 3339), empty where at once.
    `deferred` is by whom, and since when, it was left for a run from elsewhere; empty where it was not. `group` is the
    update group of the host, empty where it is not known, `users` who is logged in there, None where it is not.
    `detected_by` are the sources that say that it needs a reboot, `detail` is why, in their words. `under_way` is how
    far a rollout has come with it: `rebooting, wave 3 of 6`. `judged` is whether it is known that it needs a reboot,
    or none; `shows` are sources that it could be asked by as well.
    """

    node: str
    host: str
    ready: bool
    schedulable: bool
    needs_reboot: bool
    operation: str
    running_version: str
    staged_version: str
    boot_id: str
    reason: str
    error: str
    pool: str = ""
    failures: int = 0
    retry_after: str = ""
    deferred: str = ""
    group: str = ""
    users: tuple[LoggedInUser, ...] | None = None
    detected_by: tuple[Source, ...] = ()
    detail: str = ""
    under_way: str = ""
    judged: bool = True
    shows: tuple[Source, ...] = ()

    @property
    def is_paused(self) -> bool:
        """Whether a pause is what keeps it out of a plan."""
        return self.reason.startswith(f"{ExclusionReason.PAUSED}: ")

    @property
    def rollback(self) -> str:
        """From which version it was rolled back, and when, where it still stands so; empty where it does not."""
        sentence = self.reason.removeprefix(f"{ExclusionReason.NO_UPDATE}: ")
        return sentence if sentence.startswith(_ROLLED_BACK) else ""

    @property
    def is_rebooting(self) -> bool:
        """Whether a rollout has asked its host to reboot, which then refuses connections as it has to."""
        return self.under_way.startswith(Phase.REBOOTING)

    @property
    def is_pending(self) -> bool:
        """Whether it waits for a reboot, or a rollout is about it."""
        return self.needs_reboot or bool(self.under_way)


def node_statuses(
    nodes: Sequence[Node],
    hosts: Mapping[str, Host],
    observations: Mapping[str, HostObservation],
    own_rules: tuple[Pool, ...],
    rules: Rules,
) -> tuple[NodeStatus, ...]:
    """Rows in the natural order of names; hosts and observations are by Node name. `own_rules` are the pools."""
    pools = pools_of(Policy(pools=own_rules))
    rows = []
    for node in sorted(nodes, key=lambda node: natural_key(node.name)):
        pool = pools.of(node.labels)
        candidate = Candidate(node, observations.get(node.name), pools.rules(pool), rules, pool)
        rows.append(_row(candidate, hosts.get(node.name)))
    return tuple(rows)


def _row(candidate: Candidate, host: Host | None) -> NodeStatus:
    node, observation, facts, rules = candidate.node, candidate.observation, candidate.facts, candidate.rules
    objection, detection = exclusion(candidate), facts.detection if facts else Detection()
    failures = rules.memory.nodes.get(node.name)
    return NodeStatus(
        node=node.name,
        host=host.address if host else "",
        ready=node.is_ready,
        schedulable=not node.unschedulable,
        needs_reboot=detection.needs_reboot,
        operation=facts.update.operation.value if facts else "",
        running_version=facts.running_version if facts else "",
        staged_version=detection.version,
        boot_id=facts.boot_id if facts else node.boot_id,
        reason=_reason(candidate, objection) if objection else "",
        error=observation.message if isinstance(observation, ProbeFailure) else "",
        pool=candidate.pool,
        failures=failures.failures if failures else 0,
        retry_after=resting_until(rules.memory, node.name, rules.now),
        deferred=_deferred(node),
        group=facts.group if facts else "",
        users=facts.users if facts else None,
        detected_by=detection.by,
        detail=detection.detail,
        judged=facts is not None and not detection.unanswered,
        shows=unasked(node, facts) if facts else (),
    )


def _reason(candidate: Candidate, objection: Exclusion) -> str:
    """Why it would be left out; of a node with nothing staged, that its last update was rolled back, if it was."""
    message = objection.message.removeprefix("paused ")  # a pause says the word by itself
    if objection.reason is ExclusionReason.NO_UPDATE:
        message = _rollback(candidate) or message
    return f"{objection.reason}: {message}"


def _rollback(candidate: Candidate) -> str:
    """From which version it was rolled back to the one that it runs; empty where it was not, or runs another now."""
    result, facts, now = last_result(candidate.node), candidate.facts, candidate.rules.now
    is_there_still = facts is not None and facts.running_version == result.get("version")
    if not (is_there_still and result.get("outcome") == Outcome.ROLLED_BACK and result.get("from")):
        return ""
    ago = f", {elapsed(seconds_since(result.get('at', ''), now))} ago" if now else ""
    return f"{_ROLLED_BACK} {result['from']}{ago}"


def _deferred(node: Node) -> str:
    mark = deferral(node)
    words = (f"{word} {mark[name]}" for word, name in (("by", "by"), ("at", "at")) if name in mark)
    return " ".join(("left for a run from another node", *words)) if is_deferred(node) else ""
