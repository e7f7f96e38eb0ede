"""The proof after a boot, in three parts, each waited for.

The kubelet of the new boot reports Ready: no clocks are compared, and no NotReady is waited for, as
a fast reboot may never show one. What asked for the reboot asks for it no more, each source by its
own sign. The pods that belong to the node (static ones, DaemonSets') and were ready before are
ready again; a DaemonSet that is gone, or does not want the node any more, is not waited for. Right
after a boot the API may still have a pod as it was before: one whose Ready is of the same moment is
not back.

A version, a deployment and a marker file are settled with the boot. An operator's command and
another's annotation may take a while to follow it; the annotation is waited for only where its
agent runs, as nobody else would take it back. What is not proven is a failure of a node that works
as it did before.
"""

from collections.abc import Iterator, Mapping
from typing import assert_never

from rollout.execution.base.live_view import watch_node
from rollout.execution.drain.task import NodeTask
from rollout.execution.node.context import NodeContext, Progress
from rollout.execution.node.failures import NodeFailure, NodeRemovedError
from rollout.execution.node.ssh_host import SshHost
from rollout.gather.cluster.snapshot import read_daemon_sets, read_node, read_node_pods
from rollout.gather.hosts.polling import observe
from rollout.gather.hosts.probe import BootFacts
from rollout.gather.hosts.probe_command import Probe
from rollout.model import marks
from rollout.model.cluster import Node
from rollout.model.detection import Sign, Source, SourceAnswer
from rollout.model.host import HostFacts
from rollout.model.own_pods import pods_due, ready_before, ready_of
from rollout.model.plan import PlannedNode
from rollout.model.progress import Outcome, Phase
from rollout.model.quantity import Duration
from rollout.model.reboot_request import requests
from rollout.model.text import shortened
from rollout.ports import ClusterApi

# How long what follows a boot may take to do so, where --ready-timeout is not shorter.
_PROOF_SECONDS = 120.0
_PAUSE = 2.0
_ON_HOST = frozenset({Source.REBOOT_REQUIRED, Source.RPM_OSTREE, Source.COMMAND})
_AGENTS = frozenset({"flatcar-linux-update-agent", "container-linux-update-agent"})
_SEE = {
    Source.ANNOTATION: ("its agent's logs",),
    Source.REBOOT_REQUIRED: ("what writes /run/reboot-required at boot",),
    Source.RPM_OSTREE: (
        "rpm-ostree status on the host",
        "journalctl -b -1 -u ostree-finalize-staged on the host",
    ),
    Source.COMMAND: ("the output of detect.command on the host",),
}
_PODS_PAUSE = 1.0
_NAMED = 3


def prove_detected(context: NodeContext, host: SshHost, progress: Progress) -> None:
    """Return once each source that asked for the reboot shows that it worked; `NodeFailure` where one does not.

    The version stands first, and alone where update_engine alone was asked: it takes no further
    question.
    """
    targets = progress.targets
    if not targets or Source.UPDATE_ENGINE in targets:
        check_version(
            context.planned,
            targets.get(Source.UPDATE_ENGINE, progress.staged_version),
            progress.boot,
        )
    deadline = context.cluster.deadline(min(_PROOF_SECONDS, context.policy.ready_timeout))
    while missing := next(_missing(context, host, progress), None):
        source, why, is_final = missing
        if is_final or deadline.expired:
            message = f"the host rebooted, not proven by {source}: {why}"
            raise NodeFailure(Outcome.ROLLED_BACK, message, see=_SEE.get(source, ()))
        context.step(Phase.READY, f"waiting for its proof: {why}")
        deadline.pause(_PAUSE)


_Missing = tuple[Source, str, bool]


def _missing(context: NodeContext, host: SshHost, progress: Progress) -> Iterator[_Missing]:
    """Yield the sources without a proof, each with why, and whether no waiting helps."""
    yield from _missing_on_host(host, progress)
    if Source.ANNOTATION in progress.targets:
        node = context.node()
        names = requests(node, marks.OTHERS_REQUESTS)
        if names and not _runs_agent(context):
            names = ()
        yield from (
            (Source.ANNOTATION, f"its annotation is still true: {name}", False) for name in names
        )


def _runs_agent(context: NodeContext) -> bool:
    """Whether FLUO's or CLUO's agent runs on the node, as the name of its pod's owner or a label tells."""
    pods = context.pods()
    return any(
        not _AGENTS.isdisjoint({pod.owner.name if pod.owner else "", *pod.labels.values()})
        for pod in pods
    )


def _missing_on_host(host: SshHost, progress: Progress) -> Iterator[_Missing]:
    targets = progress.targets
    boot = progress.boot
    sources = tuple(source for source in targets if source in _ON_HOST)
    if not sources:
        return
    if Source.COMMAND in sources and not host.probe.detect_command:
        yield Source.COMMAND, "it cannot be asked, as no detect.command is given", True
        return
    probe = Probe(sources, host.probe.detect_command)
    facts = observe(host.host, host.shell, probe=probe, timeout=host.probe_timeout)
    if not isinstance(facts, HostFacts):
        yield sources[0], facts.message, False
    elif (facts.boot_id, facts.machine_id) != (boot.boot_id, boot.machine_id):
        yield sources[0], "the host is in another boot than the one that was seen", False
    else:
        for sign in facts.signs:
            why, is_final = unmet(sign, targets[sign.source])
            if why:
                yield sign.source, why, is_final


def unmet(sign: Sign, target: str) -> tuple[str, bool]:
    """Why what a host's source says now is no proof, and whether that is final; empty where it is one."""
    match sign.source:
        case Source.RPM_OSTREE:
            if not sign.current:
                return sign.detail, False
            is_booted = sign.current == target
            return (
                ("", True)
                if is_booted
                else (f"deployment {sign.current[:12]} is booted, not {target[:12]}", True)
            )
        case Source.REBOOT_REQUIRED | Source.COMMAND:
            may_change = sign.source is Source.COMMAND or sign.answer is not SourceAnswer.NEEDED
            still = "still " if sign.is_needed else ""
            return (
                ("", True)
                if sign.answer is SourceAnswer.NOT_NEEDED
                else (f"{still}{sign.detail}", not may_change)
            )
        case Source.UPDATE_ENGINE | Source.ANNOTATION:
            raise AssertionError("these are proven without asking the host")
        case _:
            assert_never(sign.source)


def await_ready(task: NodeTask, boot: BootFacts, timeout: Duration) -> None:
    """Return when the kubelet of this boot reports Ready."""
    deadline = task.cluster.deadline(timeout)
    missing = ""
    has_reported = False
    with watch_node(task.cluster, task.name, deadline) as view:
        while not deadline.expired:
            nodes = view.items()
            if not nodes and has_reported:
                # a kubelet registers its Node when it starts, and not again
                raise NodeRemovedError("its Node was deleted after its reboot, before it was Ready")
            has_reported = has_reported or any(node.boot_id == boot.boot_id for node in nodes)
            missing = _not_ready_because(nodes[0] if nodes else None, boot)
            if not missing:
                return
            task.step(Phase.BOOTED, missing)
            task.cluster.clock.wait(view.changed, min(5.0, deadline.remaining))
            view.changed.clear()
    raise NodeFailure(
        Outcome.NOT_READY,
        f"the Node is not Ready within --ready-timeout {timeout}: {missing}",
        see=(f"kubectl describe node {task.name}", "journalctl -u kubelet on the host"),
    )


def _not_ready_because(node: Node | None, boot: BootFacts) -> str:
    if node is None:
        return "the Node is gone"
    if node.boot_id != boot.boot_id:
        return "waiting for its kubelet to report this boot"
    if not node.is_ready:
        return f"waiting for Ready{': ' + node.ready_message if node.ready_message else ''}"
    return ""


def check_version(planned: PlannedNode, staged_version: str, boot: BootFacts) -> None:
    """Return where the host runs what was staged; else `NodeFailure`, for a node that works as it did before."""
    if not planned.staged or (staged_version and boot.version == staged_version):
        return
    if not staged_version and boot.version != planned.running_version:
        return
    expected = staged_version or "another version"
    raise NodeFailure(
        Outcome.ROLLED_BACK,
        f"rolled back to {boot.version} from {expected}: the update did not take",
        see=("journalctl -u update-engine on the host",),
    )


def await_own_pods(task: NodeTask, timeout: Duration) -> None:
    """Return when all that were ready before are ready again; `NodeFailure` where some are not in time.

    That is before the uncordon: no pod is to land on a node without its network. Cordons do not
    stop these pods.
    """
    before = ready_before(task.node())
    deadline = task.cluster.deadline(timeout)
    while missing := task.cluster.ask(lambda api: _missing_pods(api, task.name, before)):
        if deadline.expired:
            raise NodeFailure(
                Outcome.NOT_READY,
                f"not settled within --settle-timeout {timeout}: {missing} was ready before the"
                " reboot, and is not now",
                see=(f"kubectl get pods -A --field-selector spec.nodeName={task.name}",),
            )
        task.step(Phase.READY, f"waiting for {missing} to be ready again")
        deadline.pause(_PODS_PAUSE)


def _missing_pods(api: ClusterApi, name: str, before: Mapping[str, str]) -> str:
    if not before:
        return ""
    ready = ready_of(read_node_pods(api, name))
    missing = [
        pod for pod, since in before.items() if pod not in ready or (since and ready[pod] == since)
    ]
    if not missing:
        return ""
    return shortened(pods_due(missing, read_node(api, name), read_daemon_sets(api)), _NAMED)
