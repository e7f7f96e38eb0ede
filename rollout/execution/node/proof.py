"""Proves a reboot after its new boot ID, in three parts.

1. The kubelet of the new boot is Ready.
2. What required the reboot no longer requires it.
3. Static and DaemonSet pods that were ready before are ready again. The API may still show the old
   state, so their Ready must have a new time.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from msgspec import Struct

from rollout.execution.base.live_view import watch_node, watch_node_pods
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeFailure, NodeRemovedError, not_ready_in_time
from rollout.execution.node.rollback import is_partition, prove_rollback
from rollout.execution.node.ssh_host import SshHost
from rollout.gather.cluster.snapshot import read_daemon_sets
from rollout.gather.hosts.polling import observe
from rollout.gather.hosts.probe import BootFacts
from rollout.gather.hosts.probe_command import Probe
from rollout.model import marks
from rollout.model.cluster import DaemonSet, Node, Pod
from rollout.model.detection import Sign, Source, SourceAnswer, short_checksum
from rollout.model.host import HostFacts
from rollout.model.node_marks import requesting_annotations
from rollout.model.own_pods import pods_due, ready_before, ready_of
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.text import joined, shortened
from rollout.planning.play.pace import PROOF_SECONDS

_PAUSE = 2.0
# No watch shows deadlines, for example.
_TICK = 5.0
# Pods' changes come in bursts, and reading all DaemonSets is expensive.
_LEAST_SECONDS_BETWEEN_READS = 1.0
_ANSWERED_BY_HOST = frozenset(
    {Source.REBOOT_REQUIRED, Source.RPM_OSTREE, Source.BOOTC, Source.COMMAND, Source.ROLLBACK}
)
_FINALIZED = "journalctl -b -1 -u ostree-finalize-staged on the host"
_NOUNS = {Source.RPM_OSTREE: "deployment ", Source.BOOTC: "image "}
_AGENTS = frozenset({"flatcar-linux-update-agent", "container-linux-update-agent"})
_SEE = {
    Source.ANNOTATION: ("its agent's logs",),
    Source.REBOOT_REQUIRED: ("what writes /run/reboot-required at boot",),
    Source.RPM_OSTREE: ("rpm-ostree status on the host", _FINALIZED),
    Source.BOOTC: ("sudo bootc status on the host", _FINALIZED),
    Source.ROLLBACK: ("sudo bootc status or rpm-ostree status on the host",),
    Source.COMMAND: ("the output of detect.command on the host",),
}
_NAMED = 3


class MissingProof(Struct, frozen=True):
    source: Source
    why: str
    # Waiting does not help.
    is_final: bool = False


def prove_reboot_worked(context: NodeContext, host: SshHost, progress: Progress) -> None:
    targets = progress.targets
    if Source.ROLLBACK in targets:
        target = targets[Source.ROLLBACK]
        prove_rollback(context.planned, progress.staged_version, progress.boot, target=target)
    # Without targets, only update_engine asked for the reboot.
    if not targets or Source.UPDATE_ENGINE in targets:
        version = targets.get(Source.UPDATE_ENGINE, progress.staged_version)
        prove_version(context.planned, version, progress.boot)
    deadline = context.cluster.deadline(min(PROOF_SECONDS, context.policy.ready_timeout))
    while True:
        missing = _missing_proof(context, host, progress)
        if missing is None:
            return
        if missing.is_final or deadline.expired:
            raise NodeFailure(
                Outcome.ROLLED_BACK,
                "the host rebooted, but the reboot was not verified by"
                f" {missing.source}: {missing.why}",
                see=_SEE.get(missing.source, ()),
            )
        context.report_step(Phase.READY, f"waiting for verification: {missing.why}")
        deadline.pause(_PAUSE)


def _missing_proof(context: NodeContext, host: SshHost, progress: Progress) -> MissingProof | None:
    missing_on_host = _missing_proof_on_host(host, progress)
    if missing_on_host is not None:
        return missing_on_host
    if Source.ANNOTATION not in progress.targets:
        return None
    names = requesting_annotations(context.read_node(), marks.OTHERS_REQUESTS)
    # Without FLUO's agent, nobody but rollout removes the annotation.
    if not names or not _runs_fluo_agent(context):
        return None
    return MissingProof(Source.ANNOTATION, f"its annotation is still true: {names[0]}")


def _runs_fluo_agent(context: NodeContext) -> bool:
    for pod in context.read_pods():
        names = set(pod.labels.values())
        if pod.owner:
            names.add(pod.owner.name)
        if names & _AGENTS:
            return True
    return False


def _missing_proof_on_host(host: SshHost, progress: Progress) -> MissingProof | None:
    sources = tuple(_sources_to_ask(progress.targets))
    if not sources:
        return None
    command = host.probe.detect_command
    if Source.COMMAND in sources and not command:
        why = "cannot check: detect.command is not set"
        return MissingProof(Source.COMMAND, why, is_final=True)
    probe = Probe(sources, command)
    facts = observe(host.endpoint, host.shell, probe=probe, timeout=host.probe_timeout)
    if not isinstance(facts, HostFacts):
        return MissingProof(sources[0], facts.message)
    boot = progress.boot
    if facts.boot_id != boot.boot_id or facts.machine_id != boot.machine_id:
        why = "the host has rebooted again since the check"
        return MissingProof(sources[0], why)
    for sign in facts.signs:
        missing = missing_in_sign(sign, progress.targets[sign.source])
        if missing:
            return missing
    return None


def _sources_to_ask(targets: Mapping[Source, str]) -> Iterator[Source]:
    for source, target in targets.items():
        # Each boot may rename disks, so `prove_rollback` compares the version instead.
        if source in _ANSWERED_BY_HOST and not is_partition(target):
            yield source


def missing_in_sign(sign: Sign, target: str) -> MissingProof | None:
    match sign.source:
        case Source.RPM_OSTREE | Source.BOOTC | Source.ROLLBACK:
            # The digest of what is booted may be missing.
            if not sign.current:
                return MissingProof(sign.source, sign.detail)
            if sign.current == target:
                return None
            noun = _NOUNS.get(sign.source, "")
            booted = short_checksum(sign.current)
            why = f"{noun}{booted} is booted, not {short_checksum(target)}"
            return MissingProof(sign.source, why, is_final=True)
        case Source.REBOOT_REQUIRED | Source.COMMAND:
            if sign.answer is SourceAnswer.NOT_NEEDED:
                return None
            if not sign.is_needed:
                return MissingProof(sign.source, sign.detail)
            why = f"a reboot is still needed ({sign.detail})"
            # /run is empty after a boot, so something has asked for a reboot since.
            is_final = sign.source is Source.REBOOT_REQUIRED
            return MissingProof(sign.source, why, is_final=is_final)
        case Source.UPDATE_ENGINE | Source.ANNOTATION:
            raise AssertionError("these are proven without asking the host")
        case _:
            assert_never(sign.source)


def await_ready(task: NodeTask, boot: BootFacts, timeout: Duration) -> None:
    deadline = task.cluster.deadline(timeout)
    why_not_ready = ""
    has_joined = False
    with watch_node(task.cluster, task.name, deadline) as view:
        while not deadline.expired:
            nodes = view.items()
            node = nodes[0] if nodes else None
            if node is None and has_joined:
                raise NodeRemovedError("its Node was deleted after its reboot, before it was Ready")
            # Until it has joined, the kubelet may register a deleted Node again.
            if node is not None and node.boot_id == boot.boot_id:
                has_joined = True
            why_not_ready = _why_not_ready(node, boot)
            if not why_not_ready:
                return
            task.report_step(Phase.BOOTED, why_not_ready)
            task.cluster.clock.wait(view.changed, min(_TICK, deadline.remaining))
            view.changed.clear()
    raise not_ready_in_time(task.name, timeout, why_not_ready)


def _why_not_ready(node: Node | None, boot: BootFacts) -> str:
    if node is None:
        return "the Node is gone"
    if node.boot_id != boot.boot_id:
        return "waiting for its kubelet to report this boot"
    if not node.is_ready:
        return joined(": ", "waiting for Ready", node.ready_message)
    return ""


def prove_version(planned: PlannedNode, staged_version: str, boot: BootFacts) -> None:
    """`NodeFailure` without the staged version or, if unknown, a new one."""
    if not planned.staged:
        # The reboot was not for an update.
        return
    if staged_version and boot.running_version == staged_version:
        return
    if not staged_version and boot.running_version != planned.running_version:
        return
    expected = staged_version or "another version"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"rolled back to {boot.running_version} from {expected}: the update did not take effect",
        see=("journalctl -u update-engine on the host",),
    )


def await_own_pods(task: NodeTask, timeout: Duration) -> None:
    """Wait before the uncordon, so that no pod lands on a node without its network."""
    ready_times_before = ready_before(task.read_node())
    if not ready_times_before:
        return
    deadline = task.cluster.deadline(timeout)
    expected = _ExpectedPods(task)
    changed = threading.Event()
    with watch_node_pods(task.cluster, task.name, task.cluster.deadline(), changed) as pods:
        while True:
            missing = _missing_pods(expected, pods.items(), ready_times_before)
            if not missing:
                return
            if deadline.expired:
                raise NodeFailure(
                    Outcome.NOT_READY,
                    f"its pods did not become ready again within --settle-timeout {timeout}:"
                    f" {missing} was ready before the reboot, and is not now",
                    see=(f"kubectl get pods -A --field-selector spec.nodeName={task.name}",),
                )
            task.report_step(Phase.READY, f"waiting for {missing} to be ready again")
            has_changed = task.cluster.clock.wait(changed, min(_TICK, deadline.remaining))
            if not has_changed:
                # A broken connection shows no changes, either.
                pods.resync()
            changed.clear()


@dataclass
class _ExpectedPods:
    task: NodeTask

    def __post_init__(self) -> None:
        self._node: Node | None = None
        self._daemon_sets: Sequence[DaemonSet] = ()
        self._next_read = self.task.cluster.deadline(0)

    def among(self, pods: Sequence[str]) -> list[str]:
        """Leave out pods of DaemonSets that no longer want the node."""
        if self._node is None or self._next_read.expired:
            self._node = self.task.read_node()
            self._daemon_sets = self.task.cluster.ask(read_daemon_sets)
            self._next_read.restart(_LEAST_SECONDS_BETWEEN_READS)
        return pods_due(pods, self._node, self._daemon_sets)


def _missing_pods(
    expected: _ExpectedPods, pods: Sequence[Pod], times_before: Mapping[str, str]
) -> str:
    """Empty if all pods are ready in the new boot.

    `times_before`: since when each pod was ready before the reboot; empty if unknown.
    """
    ready_times = ready_of(pods)
    missing = []
    for pod, time_before in times_before.items():
        # Until the kubelet reports, the API shows the state from before the reboot.
        is_old_state = bool(time_before) and ready_times.get(pod) == time_before
        if pod not in ready_times or is_old_state:
            missing.append(pod)
    return shortened(expected.among(missing), _NAMED) if missing else ""
