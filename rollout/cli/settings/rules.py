import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from rollout.cli.settings.reading import CommandSettings, SettingsFile, merge_settings
from rollout.cli.settings.schema import Allow, FleetLockSettings, GatesSettings, Settings, Skip
from rollout.cli.settings.schema import settings as every_setting
from rollout.cli.terminal import say
from rollout.errors import UsageError
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.detection import Source
from rollout.model.fleetlock import GroupRules, Groups
from rollout.model.gates import AlertPolicy, GatePolicy, HealthRule, HookPolicy, WindowPolicy
from rollout.model.policy import (
    CompletionPolicy,
    CourtesyPolicy,
    Critical,
    DrainPolicy,
    Policy,
    Pool,
    Selection,
)
from rollout.model.quantity import Count
from rollout.planning.eligibility.pools import order_pools
from rollout.planning.eligibility.windows import Window


def selection_of(settings: Settings) -> Selection:
    """Return the selection."""
    return Selection(settings.nodes.selector, settings.nodes.node, settings.nodes.exclude)


def policy_of(settings: Settings) -> Policy:
    """Return the rules, and read the calendar. Raises `UsageError` for contradictions."""
    nodes = settings.nodes
    waves = settings.waves
    drain = settings.drain
    reboot = settings.reboot
    pools = tuple(Pool(**vars(pool)) for pool in settings.pool)
    order_pools(pools)
    _check_detect_command(settings)
    return Policy(
        max_unavailable=waves.max_unavailable or Count(1),
        max_failures=waves.max_failures,
        strategy=waves.strategy,
        canary=waves.canary,
        ramp=waves.ramp,
        spread_by=waves.spread_by,
        control_plane=waves.control_plane,
        control_plane_selector=waves.control_plane_selector,
        settle_timeout=waves.settle_timeout,
        include_cordoned=Allow.CORDONED in nodes.allow,
        include_held=Allow.HELD in nodes.allow,
        reboot_idle=Allow.IDLE in nodes.allow,
        skip_blocked=Skip.BLOCKED in (nodes.skip or ()),
        drain=_drain_policy(settings),
        prefer_no_schedule_taint=drain.prefer_no_schedule_taint,
        exclude_from_load_balancers=drain.exclude_from_load_balancers,
        reboot_timeout=reboot.timeout,
        ready_timeout=reboot.ready_timeout,
        own_reboot_command=_has_own_reboot_command(settings),
        detect=settings.detect.sources,
        gates=_gate_policy(settings),
        courtesy=CourtesyPolicy(
            drain_delay=drain.delay,
            reboot_delay=reboot.delay,
            fluo_labels=settings.labels.fluo,
            conditions=settings.labels.conditions,
        ),
        pools=pools,
    )


def _has_own_reboot_command(settings: Settings) -> bool:
    return settings.reboot.command not in ("", REBOOT_COMMAND)


def _check_detect_command(settings: Settings) -> None:
    is_source = Source.COMMAND in settings.detect.sources
    if is_source and not settings.detect.command:
        hint = "Specify one: --set detect.command=COMMAND."
        raise UsageError(
            "detect.sources includes command, but detect.command is not set", hint=hint
        )
    if settings.detect.command and not is_source:
        say(
            'warning: detect.command has no effect without detect.sources = ["command"]: the'
            " command is not run"
        )


def _drain_policy(settings: Settings) -> DrainPolicy:
    drain = settings.drain
    return DrainPolicy(
        timeout=drain.timeout,
        grace_period=drain.grace_period,
        force=drain.force,
        delete_emptydir_data=drain.delete_emptydir_data,
        disable_eviction=drain.disable_eviction,
        pod_selector=drain.pod_selector,
        skip_wait_for_delete_timeout=drain.skip_wait_for_delete_timeout,
        critical=tuple(Critical(**vars(rule)) for rule in settings.critical),
        completion=CompletionPolicy(
            drain.wait_for_completion,
            drain.wait_for_completion_timeout,
            drain.wait_for_completion_fallback,
        ),
        restart=drain.restart,
    )


def _gate_policy(settings: Settings) -> GatePolicy:
    gates = settings.gates
    alerts = settings.alerts
    healthy = settings.gates_healthy
    events = list[str]()
    if gates.calendar is not None:
        from rollout.adapters.calendar.freezes import read_calendar
        from rollout.adapters.clock import SystemClock

        events += read_calendar(gates.calendar, SystemClock().now(), _zone_of_windows(gates))
    return GatePolicy(
        windows=WindowPolicy(gates.window, gates.wait_window, (*gates.freeze, *events)),
        hooks=HookPolicy(
            gates.before_reboot_annotations,
            gates.after_reboot_annotations,
            gates.hook_prefix,
            gates.hook_timeout,
        ),
        alerts=AlertPolicy(alerts.prometheus_url, alerts.matchers),
        blocking_pods=gates.blocking_pod_selector,
        timeout=gates.timeout,
        health_checks=settings.waves.health_checks,
        soak=settings.waves.soak,
        # The other values of --allow name other coordinators.
        ignored_rivals=tuple(word for word in settings.nodes.allow if word not in set(Allow)),
        healthy=tuple(HealthRule(rule.resource, rule.expression) for rule in healthy),
    )


def _zone_of_windows(gates: GatesSettings) -> str:
    zones = {Window.parse(window).zone.key for window in gates.window}
    return zones.pop() if len(zones) == 1 else ""


def refuse_finalizing(settings: Settings, rollback: str) -> None:
    """Raise `UsageError` if the reboot command does not fit a rollback.

    `rollback` is the version to roll back from, or empty.
    """
    finalizes_deployment = "finalize-deployment" in settings.reboot.command
    if rollback and finalizes_deployment:
        raise UsageError(
            "reboot.command finalizes a staged deployment, but a rollback stages none",
            hint="To use the default reboot command, add --set reboot.command=",
        )


def require_settings_for(settings: CommandSettings, policy: Policy) -> None:
    """Raise `UsageError` if this process cannot follow another's policy.

    A policy holds no commands, so the settings must name them.
    """
    from rollout.adapters.cel import check_expression
    from rollout.adapters.prometheus import has_same_origin

    for rule in policy.gates.healthy:
        check_expression(rule.expression)
    refuse_finalizing(settings, policy.rollback)
    missing = _missing_commands(settings, policy)
    if missing:
        names = " and ".join(missing)
        verb = "is" if len(missing) == 1 else "are"
        raise UsageError(
            f"the rollout was planned with {names}, which {verb} not set now",
            hint=(
                f"Specify the same command with --set {missing[0]}=COMMAND. It is stored neither"
                " in the cluster nor in the plan."
            ),
        )
    url = settings.alerts.prometheus_url
    planned_url = policy.gates.alerts.url
    is_typed = "alerts.prometheus-url" in settings.typed
    if is_typed and not has_same_origin(url, planned_url):
        planned = planned_url or "no Prometheus"
        raise UsageError(
            f"alerts.prometheus-url is {url}, but the rollout was planned with {planned}",
            hint="Drop it, or make a new plan with it.",
        )


def _missing_commands(settings: Settings, policy: Policy) -> Sequence[str]:
    missing: list[str] = []
    if Source.COMMAND in policy.sources and not settings.detect.command:
        missing.append("detect.command")
    if policy.own_reboot_command and not _has_own_reboot_command(settings):
        missing.append("reboot.command")
    return missing


def groups_of(fleetlock: FleetLockSettings) -> Groups:
    """Return FleetLock's groups, with default slots where no count is set."""
    counts = _value_by_group(fleetlock.group)
    selectors = _value_by_group(fleetlock.group_selector)
    rules: dict[str, GroupRules] = {}
    for name in {**counts, **selectors}:
        slots = Count.parse(counts[name]) if name in counts else fleetlock.slots
        rules[name] = GroupRules(slots, selectors.get(name, ""))
    return Groups(GroupRules(fleetlock.slots), rules)


def _value_by_group(assignments: Sequence[str]) -> Mapping[str, str]:
    return dict(assignment.split("=", maxsplit=1) for assignment in assignments)


def fleetlock_policy(settings: Settings) -> Policy:
    """Return a FleetLock server's policy.

    By default, as many nodes may be unavailable as all groups have slots. Raises `UsageError` for
    playbooks, too.
    """
    if settings.reboot.pre_playbook or settings.reboot.post_playbook:
        raise UsageError(
            "reboot.pre-playbook and reboot.post-playbook cannot be used with fleetlock, which"
            " does not use SSH",
            hint="Drop them.",
        )
    policy = policy_of(settings)
    fleetlock = settings.fleetlock
    if settings.waves.max_unavailable is not None:
        return policy
    named_groups = groups_of(fleetlock).named.values()
    slot_counts = [rules.slots for rules in named_groups] or [fleetlock.slots]
    percentages = [count for count in slot_counts if count.is_share]
    if percentages:
        # Numbers cannot be added to a percentage.
        limit = max(percentages, key=lambda percentage: percentage.of(100))
    else:
        # A plain number is the same `of` any number of nodes.
        limit = Count(sum(count.of(0) for count in slot_counts))
    return replace(policy, max_unavailable=limit)


_UNFIT_FOR_PODS = {
    "cluster.kubeconfig": "the pod uses its service account",
    "cluster.context": "the pod uses its service account",
    "gates.interactive": "a pod cannot ask for confirmation",
    "notify.url": (
        "it is secret: store it in a Secret under the key ROLLOUT_NOTIFY, and specify that Secret"
        " with --env-secret"
    ),
}
_WRITABLE = Path("/tmp")  # noqa: S108 - the pod's own volume
_WRITTEN_FILES = frozenset({"output.journal", "metrics.textfile"})
_SECRET = re.compile(
    r"://[^/\s@]*:[^/\s]+@|-----BEGIN|\bbearer\s+\S"
    r"|(token|passw(or)?d|passphrase|secret|api[-_]?key)\w*['\"]?\s*[=:]\s*\S",
    re.IGNORECASE,
)


def read_pod_settings(file: SettingsFile, *, is_fleetlock: bool) -> tuple[Settings, Policy]:
    """Raise `UsageError` for settings unfit for a pod, or for a secret."""
    for number, line in enumerate(file.text.splitlines(), 1):
        # Comments are searched, too: the ConfigMap shows them.
        may_be_secret = _SECRET.search(line) is not None
        if may_be_secret:
            raise UsageError(
                f"{file.name}:{number} may contain a secret and would be stored in a ConfigMap",
                hint=(
                    "Move it to a Secret as an environment variable, and specify that Secret with"
                    " --env-secret."
                ),
            )
    settings = merge_settings(file, {}, {})
    unfit = ", ".join(_unfit_settings(settings))
    if unfit:
        raise UsageError(
            f"{file.name} contains settings that a pod cannot use: {unfit}",
            hint="Remove them, or use a separate settings file for the cluster.",
        )
    # Only the pod has the calendar's file.
    without_calendar = settings.without_calendar()
    policy = fleetlock_policy(without_calendar) if is_fleetlock else policy_of(without_calendar)
    return settings, policy


def _unfit_settings(settings: CommandSettings) -> Iterator[str]:
    for name, setting in every_setting().items():
        table, _, key = name.partition(".")
        value = getattr(getattr(settings, table), key.replace("-", "_"))
        is_set = name in settings.places and value is not None
        if not is_set:
            continue
        if name in _UNFIT_FOR_PODS:
            yield f"{name} ({_UNFIT_FOR_PODS[name]})"
        elif name in _WRITTEN_FILES and not value.is_relative_to(_WRITABLE):
            yield f"{name} (the pod can write only to {_WRITABLE})"
        elif setting.kind is Path and not value.is_absolute() and value != Path("none"):
            yield f"{name} (use an absolute path inside the pod, from the image or a volume)"
