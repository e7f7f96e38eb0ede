"""`rollout operate`."""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import pools, values
from rollout.cli.options.cluster import ClusterOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.gates import GateOptions, LocalGateOptions
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.metrics import ListenOptions
from rollout.cli.options.nodes import IgnoreOption, RequireAllOption, SelectionOptions
from rollout.cli.options.policy import PolicyOptions
from rollout.cli.options.run import LeftoverOptions, ProcessOptions
from rollout.cli.settings import rereading
from rollout.errors import RolloutError, UsageError
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.cli.stages.metrics import Meter
    from rollout.cli.stages.operating import PassSettings
    from rollout.model.policy import Policy


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """How often, and how long."""

    once: Annotated[bool, Flag(OWN, "Make one pass and end: for a CronJob.")] = False
    every: Annotated[
        Duration,
        Flag(OWN, "Without --once: time from the start of one pass to the next.", "DURATION", read=values.some_time),
    ] = Duration(600)
    active_deadline: Annotated[
        Duration | None,
        Flag(
            OWN,
            "How long a pass may take: it starts no node that is not estimated to be back by then.",
            "DURATION",
            read=values.some_time,
        ),
    ] = None


def operate(  # noqa: PLR0917 - typer's parameters; each is a group of options
    call: typer.Context,
    cluster: ClusterOptions,
    selection: SelectionOptions,
    policy: PolicyOptions,
    gates: GateOptions,
    local: LocalGateOptions,
    process: ProcessOptions,
    general: GeneralOptions,
    pace: PaceOptions,
    listen: ListenOptions,
    require_all: RequireAllOption = False,
    ignore_blockers: IgnoreOption = False,
) -> None:
    """Reboot what waits, unattended: pass after pass, or one with --once.

    A pass goes on with what an earlier one was interrupted in, then does what apply does, and asks nothing. Outside a
    window, with nothing staged, beside another rollout, or where a person's rollout was stopped, it says so and ends
    with 0. Nodes with blockers are left out (skip-blocked = false refuses instead). Settings are read anew each pass.

    \b
    Examples:
      rollout operate --once --active-deadline 3h --config rollout.toml
      rollout operate --every 10m --window 'mon-fri 01:00 4h Europe/Berlin'
    """
    skips = policy.skip_blocked if _is_given(call, "skip_blocked") else not ignore_blockers
    leftover = LeftoverOptions(require_all=require_all, skip_blocked=skips, ignore_blockers=ignore_blockers)
    rules = process.reboot.added_to(gates.added_to(policy.with_pools(pools.given(call))))
    rules = process.detect.added_to(rules)
    _refuse_what_persons_decide(local, rules)
    from rollout.cli.stages.metrics import metered
    from rollout.cli.stages.operating import PassSettings

    settings = PassSettings(
        cluster=cluster,
        selection=selection.selection,
        policy=_unattended(rules, skip_blocked=skips),
        process=process,
        local=local,
        prometheus_url=gates.prometheus_url,
        leftover=leftover,
        active_deadline=pace.active_deadline,
        as_json=general.as_json,
    )
    if not rereading.answer(call, settings):
        server = _server(cluster) if process.metrics.is_used or listen.metrics_listen else ""
        with metered(process.metrics, process.naming.cluster_name, server, listen.metrics_listen) as meter:
            _operate(call, settings, pace, meter, verbose=general.verbose)


def _refuse_what_persons_decide(local: LocalGateOptions, policy: "Policy") -> None:
    if local.interactive:
        raise UsageError(
            "--interactive asks before each wave, and operate runs unattended", hint="Drop it, or use apply."
        )
    if policy.include_held:
        hint = "Use apply or resume with it, or: rollout release VERSION."
        raise UsageError("--include-held is a person's decision, and operate runs unattended", hint=hint)
    if policy.reboot_idle or any(pool.reboot_idle for pool in policy.pools):
        hint = "Drop reboot-idle, also of pools. For one rolling reboot: rollout apply --reboot-idle."
        raise UsageError("--reboot-idle would reboot every node at each pass of operate", hint=hint)


def _operate(call: typer.Context, settings: "PassSettings", pace: PaceOptions, meter: "Meter", *, verbose: int) -> None:
    from rollout.cli import wiring
    from rollout.cli.signals import interrupted_by_signals
    from rollout.cli.stages.lock import lock_watch
    from rollout.cli.stages.notify import News
    from rollout.cli.stages.operating import Lasting, PassSettings, make_pass
    from rollout.cli.stages.standing import Loop
    from rollout.execution.base.stop import StopRequest

    clock, ending = wiring.system_clock(), StopRequest()
    lasting = Lasting(lock_watch(), ending, meter, News(), is_standing=not pace.once)
    with interrupted_by_signals(ending) as undisturbed:
        if pace.once:
            raise typer.Exit(make_pass(settings, lasting).code)
        reread = partial(rereading.reread, call, PassSettings)
        Loop(reread, pace.every, verbose, clock, lasting, undisturbed).run(settings)


def _server(cluster: ClusterOptions) -> str:
    """The API server's address; empty where there is no way to it, which each pass tells."""
    from rollout.cli import wiring

    try:
        return wiring.cluster_api(cluster).server
    except RolloutError:
        return ""


def _unattended(policy: "Policy", *, skip_blocked: bool) -> "Policy":
    """A pass ends when its window closes, and the next one goes on: none waits for days with the lock in hand."""
    windows = replace(policy.gates.windows, wait=False)
    return replace(policy, skip_blocked=skip_blocked, gates=replace(policy.gates, windows=windows))


def _is_given(call: typer.Context, name: str) -> bool:
    """Whether any layer says it: a flag, the environment, or the file."""
    source = call.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"
