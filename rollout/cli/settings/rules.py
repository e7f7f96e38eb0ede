"""The rules of a rollout, as its plan and its record hold them, from the settings."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from rollout.cli.settings.keys import Table, settings_of
from rollout.cli.settings.reading import Given
from rollout.cli.settings.schema import Allow, FleetLock, PoolTable, Settings, Skip
from rollout.cli.terminal import say
from rollout.errors import UsageError
from rollout.gather.hosts.probe_command import REBOOT_COMMAND
from rollout.model.detection import Source
from rollout.model.fleetlock import GroupRules, Groups
from rollout.model.gates import AlertPolicy, GatePolicy, HookPolicy, WindowPolicy
from rollout.model.policy import CourtesyPolicy, Critical, DrainPolicy, Policy, Pool, Selection
from rollout.model.quantity import Count


def selection_of(settings: Settings) -> Selection:
    """Which nodes are meant."""
    return Selection(settings.nodes.selector, settings.nodes.node, settings.nodes.exclude)


def policy_of(settings: Settings) -> Policy:
    """All rules; `UsageError` for those that contradict one another."""
    nodes, waves, reboot = settings.nodes, settings.waves, settings.reboot
    most = {"max_unavailable": waves.max_unavailable or Count(1)}
    return Policy(
        **{**_alike(Policy, waves, settings.drain, reboot), **most},
        include_cordoned=Allow.CORDONED in nodes.allow,
        reboot_idle=Allow.IDLE in nodes.allow,
        skip_blocked=Skip.BLOCKED in (nodes.skip or ()),
        include_held=Allow.HELD in nodes.allow,
        drain=DrainPolicy(
            **_alike(DrainPolicy, settings.drain), critical=tuple(Critical(**vars(rule)) for rule in settings.critical)
        ),
        reboot_timeout=reboot.timeout,
        own_reboot_command=reboot.command not in ("", REBOOT_COMMAND),
        detect=detected_by(settings),
        gates=_gates(settings),
        courtesy=_courtesy(settings),
        pools=_pools(settings.pool, settings.file if isinstance(settings, Given) else ""),
    )


def _alike(rules: type[Policy] | type[DrainPolicy], *tables: Table) -> dict[str, Any]:
    """Return the rules that stand in these tables by the same names."""
    names = {rule.name for rule in fields(rules)}
    return {
        item.field: getattr(table, item.field)
        for table in tables
        for item in settings_of(type(table))
        if item.field in names
    }


def _gates(settings: Settings) -> GatePolicy:
    gates, alerts = settings.gates, settings.alerts
    return GatePolicy(
        windows=WindowPolicy(gates.window, gates.wait_window, freezes_of(settings)),
        hooks=HookPolicy(
            gates.before_reboot_annotations, gates.after_reboot_annotations, gates.hook_prefix, gates.hook_timeout
        ),
        alerts=AlertPolicy(alerts.prometheus_url, alerts.filter_regexp, alerts.filter_match_only, alerts.matchers),
        blocking_pods=gates.blocking_pod_selector,
        timeout=gates.timeout,
        health_checks=settings.waves.health_checks,
        soak=settings.waves.soak,
        ignored_rivals=tuple(word for word in settings.nodes.allow if word not in set(Allow)),
    )


def freezes_of(settings: Settings) -> tuple[str, ...]:
    """Return the freezes that are written, and those of the calendar as it is now."""
    freezes, calendar = settings.gates.freeze, settings.gates.calendar
    if calendar is None:
        return freezes
    from rollout.adapters.calendar_file import read_calendar
    from rollout.adapters.clock import SystemClock

    return (*freezes, *read_calendar(calendar, SystemClock().now()))


def _courtesy(settings: Settings) -> CourtesyPolicy:
    return CourtesyPolicy(settings.drain.delay, settings.reboot.delay, settings.labels.fluo)


def _pools(tables: Sequence[PoolTable], file: str) -> tuple[Pool, ...]:
    from rollout.planning.eligibility.pools import ordered

    pools = tuple(Pool(**vars(table)) for table in tables)
    try:
        ordered(pools)
    except UsageError as error:
        raise UsageError(f"{file}: {error.message}" if file else error.message, hint=error.hint) from error
    return pools


def detected_by(settings: Settings) -> tuple[Source, ...]:
    """Return what hosts are asked; `UsageError` where that is a command, and there is none."""
    sources, command = settings.detect.sources, settings.detect.command
    if Source.COMMAND in sources and not command:
        raise UsageError(
            "detect.sources has command, and there is none", hint="Give one: --set detect.command=COMMAND."
        )
    if command and Source.COMMAND not in sources:
        say('warning: detect.command has no effect without detect.sources = ["command"]: it is not asked')
    return sources


def refuse_missing_commands(settings: Settings, policy: Policy) -> None:
    """`UsageError` where these rules need a command of this process, and it has none: no rules hold commands."""
    missing = []
    if Source.COMMAND in policy.detect and not settings.detect.command:
        missing.append("detect.command")
    if policy.own_reboot_command and settings.reboot.command in ("", REBOOT_COMMAND):
        missing.append("reboot.command")
    if missing:
        raise UsageError(
            f"it was started or planned with a {' and a '.join(missing)}, and none is given",
            hint=f"Give the same one, --set {missing[0]}=COMMAND: it is stored neither on the cluster nor in the plan.",
        )


def refuse_another_address(settings: Given, policy: Policy) -> None:
    """`UsageError` for an address of Prometheus on the command line that is not the one which is asked."""
    from rollout.adapters.prometheus import is_same_place

    own, url = settings.alerts.prometheus_url, policy.gates.alerts.url
    if "alerts.prometheus-url" in settings.typed and not is_same_place(own, url):
        raise UsageError(
            f"alerts.prometheus-url is {own}, but this was planned with {url or 'no Prometheus'}",
            hint="Drop it, or make a new plan with it.",
        )


def groups_of(server: FleetLock) -> Groups:
    """Which of FleetLock's groups may have how many slots."""
    counts, selectors = _by_group(server.group), _by_group(server.group_selector)
    names = dict.fromkeys((*counts, *selectors))
    rules = {
        name: GroupRules(Count.parse(counts.get(name, str(server.slots))), selectors.get(name, "")) for name in names
    }
    return Groups(GroupRules(server.slots), rules)


def _by_group(written: Sequence[str]) -> dict[str, str]:
    return {name: rest for name, _, rest in (text.partition("=") for text in written)}


def server_policy(settings: Settings) -> Policy:
    """Return the rules of a FleetLock server: where nobody limits it, as many nodes may be away as there are slots."""
    policy, server = policy_of(settings), settings.fleetlock
    if settings.waves.max_unavailable is not None:
        return policy
    counts = [rules.slots for rules in groups_of(server).named.values()] or [server.slots]
    # of 100: percentages are compared by what they are of one number
    shares = [count for count in counts if count.is_share]
    most = max(shares, key=lambda share: share.of(100)) if shares else Count(sum(count.of(0) for count in counts))
    return replace(policy, max_unavailable=most)
