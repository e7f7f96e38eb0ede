"""`rollout operate`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.flags import CLUSTER, HOSTS, RULES, takes
from rollout.cli.settings.reading import Given
from rollout.cli.settings.rules import policy_of, selection_of
from rollout.cli.settings.schema import Allow, Cluster, Skip
from rollout.errors import RolloutError, UsageError

if TYPE_CHECKING:
    from rollout.cli.stages.metrics import Meter
    from rollout.cli.stages.operate_pass import PassSettings
    from rollout.model.policy import Policy


OnceOption = Annotated[bool, typer.Option("--once", help="Make one pass and end: for a CronJob")]


@takes("operate", *CLUSTER, "nodes", *RULES, "evidence", *HOSTS)
def operate(settings: Given, once: OnceOption = False) -> None:
    """Reboot what waits, unattended: pass after pass, or one with --once.

    A pass goes on with what an earlier one was interrupted in, then does what apply does, and asks nothing. Outside a
    window, with nothing staged, beside another rollout, or where a person's rollout was stopped, it says so and ends
    with 0. Nodes with blockers are left out, unless they are allowed (skip = [] refuses to start instead).

    \b
    Examples:
      rollout operate --once --active-deadline 3h --config rollout.toml
      rollout operate --every 10m --window 'mon-fri 01:00 4h Europe/Berlin'
    """
    from rollout.cli.stages.evidence import evidence_rules
    from rollout.cli.stages.metrics import metered
    from rollout.cli.stages.operate_pass import PassSettings

    settings = _skipping(settings)
    rules = _unattended(policy_of(settings))
    if settings.evidence.source:
        evidence_rules(settings)
    _refuse_what_persons_decide(rules, interactive=settings.gates.interactive)
    passes = PassSettings(settings, selection_of(settings), rules)
    server = _server(settings.cluster) if settings.metrics.is_used or settings.metrics.listen else ""
    with metered(settings.metrics, settings.cluster.name, server, settings.metrics.listen) as meter:
        _operate(passes, meter, once=once)


def _skipping(settings: Given) -> Given:
    """Nodes with blockers are left out where nobody says otherwise."""
    nodes = settings.nodes
    if nodes.skip is not None or Allow.BLOCKED in nodes.allow:
        return settings
    return replace(settings, nodes=replace(nodes, skip=(Skip.BLOCKED,)))


def _refuse_what_persons_decide(policy: "Policy", *, interactive: bool) -> None:
    if interactive:
        raise UsageError("gates.interactive asks before each wave, and operate runs unattended", hint="Use apply.")
    if policy.include_held:
        hint = "Use apply or resume with it, or: rollout release VERSION."
        raise UsageError("--allow held is a person's decision, and operate runs unattended", hint=hint)
    if policy.reboot_idle or any(pool.reboot_idle for pool in policy.pools):
        hint = "Drop it, and reboot-idle of pools. For one rolling reboot: rollout apply --allow idle."
        raise UsageError("--allow idle would reboot every node at each pass of operate", hint=hint)


def _operate(settings: "PassSettings", meter: "Meter", *, once: bool) -> None:
    from rollout.cli import wiring
    from rollout.cli.signals import interrupted_by_signals
    from rollout.cli.stages.lock import lock_watch
    from rollout.cli.stages.notify import News
    from rollout.cli.stages.operate_loop import Loop
    from rollout.cli.stages.operate_pass import Lasting, make_pass
    from rollout.execution.base.stop import StopRequest

    clock, ending = wiring.system_clock(), StopRequest()
    lasting = Lasting(lock_watch(), ending, meter, News(), is_standing=not once)
    with interrupted_by_signals(ending) as undisturbed:
        if once:
            raise typer.Exit(make_pass(settings, lasting).code)
        given = settings.settings
        Loop(given.operate.every, given.output.verbose, clock, lasting, undisturbed).run(settings)


def _server(cluster: Cluster) -> str:
    """The API server's address; empty where there is no way to it, which each pass tells."""
    from rollout.cli import wiring

    try:
        return wiring.cluster_api(cluster).server
    except RolloutError:
        return ""


def _unattended(policy: "Policy") -> "Policy":
    """A pass ends when its window closes, and the next one goes on: none waits for days with the lock in hand."""
    windows = replace(policy.gates.windows, wait=False)
    return replace(policy, gates=replace(policy.gates, windows=windows))
