"""A new rollout, from what was gathered to what is run; for whoever asks first, and for whoever does not."""

from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.run import ProcessOptions
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.execute import Run
from rollout.cli.stages.gather import Connections, Gathered
from rollout.cli.stages.plan import Intent
from rollout.cli.terminal import show
from rollout.execution.gates.ports import GatePorts


def gathered(intent: Intent, cluster: ClusterOptions, process: ProcessOptions) -> Gathered:
    """All that the plan is made of; refused without the rights, or beside an unfinished rollout."""
    connections = gather.connect(cluster, intent.selection, process.ssh)
    return gathered_by(connections, intent, process)


def gathered_by(connections: Connections, intent: Intent, process: ProcessOptions) -> Gathered:
    """The same by connections that are there already."""
    namespace = process.lease.lease_namespace
    refusals.refuse_without_rights(connections, intent.policy.drain, namespace, unattended=intent.unattended)
    snapshot = gather.read_cluster(connections, namespace)
    refusals.refuse_unfinished(connections, snapshot.nodes, namespace)
    probe = process.detect.probe(intent.policy.detect)
    targets = gather.ask_hosts(snapshot.nodes, connections, intent.selection, process.ssh, probe)
    return Gathered(connections, snapshot, targets)


def planned_run(
    intent: Intent,
    gathered: Gathered,
    process: ProcessOptions,
    gates: GatePorts,
    *,
    quiet: bool,
    width: int | None = None,
) -> Run:
    """What is to be run, after showing it in `width` columns, None for no limit."""
    decided = plan.decide(intent, gathered.snapshot, gathered.targets)
    if not quiet:
        show(plan.shown(decided, gathered.snapshot, width))
    conceded = plan.warn_of_relaxed_rules(decided.policy, "the saved plan has", intent.chosen) if intent.saved else ()
    selected = gathered.targets.number_of(decided.selection)
    return execute.run_of(process, gathered, decided, selected, gates, conceded)
