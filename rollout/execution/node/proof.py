"""The last part of the proof: whatever asked for the reboot asks for it no more, each source by its own sign.

A version, a deployment and a marker file are settled with the boot. An operator's command and another's annotation may
take a while to follow it, and are waited for; the annotation only where its agent runs, as nobody else would take it
back. What is not proven is a failure of a node that works as it did before.
"""

from collections.abc import Iterator
from typing import assert_never

from rollout.execution.node.context import NodeContext
from rollout.execution.node.failures import NodeFailure
from rollout.execution.node.progress import Progress
from rollout.execution.node.readiness import check_version
from rollout.gather.cluster.snapshot import read_node, read_node_pods
from rollout.gather.hosts.boot import BootFacts
from rollout.gather.hosts.polling import observe
from rollout.gather.hosts.probe_command import Probe
from rollout.model import marks
from rollout.model.courtesy import Compat
from rollout.model.detection import Answer, Sign, Source
from rollout.model.host import HostFacts
from rollout.model.progress import Outcome, Phase
from rollout.model.reboot_request import requests

# How long what follows a boot may take to do so, where --ready-timeout is not shorter.
_PROOF_SECONDS = 120.0
_PAUSE = 2.0
_ON_HOST = frozenset({Source.REBOOT_REQUIRED, Source.RPM_OSTREE, Source.COMMAND})
_AGENTS = frozenset({"flatcar-linux-update-agent", "container-linux-update-agent"})
_HINTS = {
    Source.ANNOTATION: "See its agent's logs.",
    Source.REBOOT_REQUIRED: "See what writes /run/reboot-required at boot.",
    Source.RPM_OSTREE: "See `rpm-ostree status` and `journalctl -b -1 -u ostree-finalize-staged` on the host.",
    Source.COMMAND: "Run the detect.command on the host.",
}


def prove_detected(context: NodeContext, progress: Progress, boot: BootFacts) -> None:
    """Return once each source that asked for the reboot shows that it worked; `NodeFailure` where one does not.

    The version stands first, and alone where update_engine alone was asked: it takes no further question.
    """
    targets = progress.targets
    if not targets or Source.UPDATE_ENGINE in targets:
        check_version(context.planned, targets.get(Source.UPDATE_ENGINE, progress.staged_version), boot)
    deadline = context.cluster.deadline(min(_PROOF_SECONDS, context.policy.ready_timeout))
    reported = ""
    while missing := next(_missing(context, progress, boot), None):
        source, why, is_final = missing
        if is_final or deadline.expired:
            raise _unproven(source, why)
        if why != reported:
            reported = why
            context.report.step(context.name, Phase.READY, f"waiting for its proof: {why}")
        deadline.pause(_PAUSE)


def _unproven(source: Source, why: str) -> NodeFailure:
    message = f"the host rebooted, not proven by {source}: {why}"
    return NodeFailure(Outcome.ROLLED_BACK, message, hint=_HINTS.get(source, ""))


_Missing = tuple[Source, str, bool]


def _missing(context: NodeContext, progress: Progress, boot: BootFacts) -> Iterator[_Missing]:
    """The sources without a proof, each with why, and whether no waiting helps."""
    yield from _missing_on_host(context, progress, boot)
    if Source.ANNOTATION in progress.targets:
        node = context.cluster.ask(lambda api: read_node(api, context.name))
        is_told = Compat.FLUO in context.policy.courtesy.annotate_compat
        # what labels.compat writes there is told of the reboot, and changes with the node's end
        others = tuple(name for name in marks.OTHERS_REQUESTS if not (is_told and name.startswith(marks.FLUO_PREFIX)))
        names = requests(node, others)
        if names and not _runs_agent(context):
            names = ()
        yield from ((Source.ANNOTATION, f"its annotation is still true: {name}", False) for name in names)


def _runs_agent(context: NodeContext) -> bool:
    """Whether FLUO's or CLUO's agent runs on the node, as the name of its pod's owner or a label tells."""
    pods = context.cluster.ask(lambda api: read_node_pods(api, context.name)).pods
    return any(not _AGENTS.isdisjoint({pod.owner.name if pod.owner else "", *pod.labels.values()}) for pod in pods)


def _missing_on_host(context: NodeContext, progress: Progress, boot: BootFacts) -> Iterator[_Missing]:
    host, targets = context.host, progress.targets
    sources = tuple(source for source in targets if source in _ON_HOST)
    if not sources:
        return
    if Source.COMMAND in sources and not host.probe.sentinel:
        yield Source.COMMAND, "it cannot be asked, as no detect.command is given", True
        return
    probe = Probe(sources, host.probe.sentinel)
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
            return ("", True) if is_booted else (f"deployment {sign.current[:12]} is booted, not {target[:12]}", True)
        case Source.REBOOT_REQUIRED | Source.COMMAND:
            may_change = sign.source is Source.COMMAND or sign.answer is not Answer.NEEDED
            still = "still " if sign.is_needed else ""
            return ("", True) if sign.answer is Answer.NOT_NEEDED else (f"{still}{sign.detail}", not may_change)
        case Source.UPDATE_ENGINE | Source.ANNOTATION:
            raise AssertionError("these are proven without asking the host")
        case _:
            assert_never(sign.source)
