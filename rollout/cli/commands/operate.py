"""`docs/architecture.md`, "How operate runs", lists the steps of a pass."""

from dataclasses import replace

import typer

from rollout.cli.flags import LINES, takes
from rollout.cli.options import option
from rollout.cli.settings.reading import RULES, CommandSettings
from rollout.cli.settings.rules import policy_of
from rollout.cli.settings.schema import Allow, Skip
from rollout.errors import RolloutError, UsageError

_ALLOW = (
    "Proceed despite this condition, or include nodes with it: blocked, cordoned, unhealthy, or a"
    " reboot coordinator such as kured; repeatable"
)


@takes(
    "operate", "cluster", *RULES, "evidence", "ssh", formats=LINES, helps={"nodes.allow": _ALLOW}
)
def operate(
    settings: CommandSettings,
    once: bool = option(False, "Exit after one pass, for example in a CronJob"),
) -> None:
    """Reboot pending nodes unattended, once or continuously.

    Each pass first continues an interrupted pass, and then does what apply does, without asking for
    confirmation. If no window is open, no update is staged, another rollout is running, or a
    `rollout abort` has turned off unattended passes, the pass prints the reason, reboots nothing,
    and counts as successful (exit code 0 with --once). A pass skips nodes with blockers, unless
    --allow blocked is given. With `skip = []` in the settings file, it does not start if there are
    blockers.

    \b
    Examples:
      rollout operate --once --active-deadline 3h --config rollout.toml
      rollout operate --every 10m --window 'mon-fri 01:00 4h Europe/Berlin'
    """
    from rollout.cli.signals import interrupted_by_signals
    from rollout.cli.stages.metrics import deliver_metrics
    from rollout.cli.stages.operate import Operation
    from rollout.execution.base.deadline import GracefulStop

    settings = _for_unattended_passes(settings)
    # Wrong settings must end the process, not each pass.
    if settings.evidence.source:
        from rollout.cli.stages.evidence import evidence_rules

        evidence_rules(settings)
    _refuse_settings_for_attended_runs(settings)
    with deliver_metrics(settings, _api_server_url(settings), serves=True) as metrics:
        process_stop = GracefulStop()
        operation = Operation(settings, process_stop, metrics, once=once)
        with interrupted_by_signals(process_stop) as ignore_signals:
            if once:
                raise typer.Exit(operation.run_once())
            operation.run_until_stopped(ignore_signals)


def _for_unattended_passes(settings: CommandSettings) -> CommandSettings:
    # Waiting for a window would hold the lock for days.
    settings = replace(settings, gates=replace(settings.gates, wait_window=False))
    # `skip = []` means to skip no node.
    is_skip_unset = settings.nodes.skip is None
    if is_skip_unset and Allow.BLOCKED not in settings.nodes.allow:
        settings = replace(settings, nodes=replace(settings.nodes, skip=(Skip.BLOCKED,)))
    return settings


def _api_server_url(settings: CommandSettings) -> str:
    from rollout.cli import wiring

    try:
        return wiring.cluster_api(settings).server
    except RolloutError:
        return ""


def _refuse_settings_for_attended_runs(settings: CommandSettings) -> None:
    policy = policy_of(settings)
    if settings.gates.interactive:
        raise UsageError(
            "gates.interactive asks before each wave, but operate runs unattended",
            hint="Use rollout apply instead.",
        )
    if policy.include_held:
        hint = "Use it with apply or resume, or run: rollout release VERSION"
        raise UsageError(
            "--allow held is a person's decision, but operate runs unattended", hint=hint
        )
    if policy.reboot_idle or any(pool.reboot_idle for pool in policy.pools):
        hint = (
            "Drop it, and remove reboot-idle from pools. For one rolling reboot, run: rollout apply"
            " --allow idle"
        )
        raise UsageError("--allow idle would reboot every node in each pass of operate", hint=hint)
