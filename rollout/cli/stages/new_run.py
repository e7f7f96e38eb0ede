"""A new rollout, from what was gathered to what is run; for whoever asks first, and for whoever does not."""

from rollout.cli.options.run import ProcessOptions
from rollout.cli.stages import execute, gather, plan, refusals
from rollout.cli.stages.execute import Run, RunSettings
from rollout.cli.stages.gather import Connections, Gathered
from rollout.cli.stages.plan import Intent
from rollout.cli.terminal import show


def gathered_by(connections: Connections, intent: Intent, process: ProcessOptions) -> Gathered:
    """All that the plan is made of; refused without the rights, or beside an unfinished rollout."""
    namespace = process.lease.lease_namespace
    refusals.refuse_without_rights(connections, intent.policy.drain, namespace, unattended=intent.unattended)
    snapshot = gather.read_cluster(connections, namespace)
    refusals.refuse_unfinished(connections, snapshot.nodes, namespace)
    probe = process.detect.probe(intent.policy.detect)
    targets = gather.ask_hosts(snapshot.nodes, connections, intent.selection, process.ssh, probe)
    return Gathered(connections, snapshot, targets)


def planned_run(intent: Intent, gathered: Gathered, settings: RunSettings, *, quiet: bool) -> Run:
    """What is to be run, after showing it unless `quiet`."""
    decided = plan.decide(intent, gathered.snapshot, gathered.targets)
    if not quiet:
        show(plan.shown(decided, gathered.snapshot, settings.width))
    conceded = plan.warn_of_relaxed_rules(decided.policy, "the saved plan has", intent.chosen) if intent.saved else ()
    selected = gathered.targets.number_of(decided.selection)
    return execute.run_of(settings, gathered, decided, selected, conceded)
