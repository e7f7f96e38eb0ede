"""Every setting there is, once: a table a subject, a field a key, with its help, its default and how it is read.

    [drain]
    timeout = "20m"

is `drain.timeout`: in a file that `--config` names, as `--set drain.timeout=20m`, and, as people type it often, as the
flag `--drain-timeout` and the variable `ROLLOUT_DRAIN_TIMEOUT`.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import get_type_hints

from rollout.cli.settings import values
from rollout.cli.settings.keys import Setting, Table, setting, settings_of
from rollout.cli.settings.output import Output
from rollout.cli.settings.unattended import Alerts, Evidence, FleetLock, Labels, Metrics, Notify, Operate
from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, HostKeyChecking
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Strategy
from rollout.model.quantity import LONGEST, Count, Duration
from rollout.planning.eligibility.rivals import RIVALS

_POLICY, _DRAIN, _GATES, _HOOKS = Policy(), DrainPolicy(), GatePolicy(), HookPolicy()


class Executor(StrEnum):
    """What carries commands to the hosts."""

    SSH = "ssh"
    ANSIBLE = "ansible"


class StopMode(StrEnum):
    """What a first signal does to the nodes in flight."""

    FINISH = "finish"
    REVERT = "revert"


class Skip(StrEnum):
    """Nodes that are left out, where a rollout would refuse to start."""

    BLOCKED = "blocked"


class Allow(StrEnum):
    """What is done although it is usually refused; names of other reboot coordinators are taken, too."""

    BLOCKED = "blocked"
    CORDONED = "cordoned"
    HELD = "held"
    IDLE = "idle"


class Cluster(Table):
    """Which cluster."""

    kubeconfig: Path | None = setting(None, "Default: $KUBECONFIG, ~/.kube/config, the pod's own", flag="kubeconfig")
    context: str = setting("", "Context of the kubeconfig; default: its current", "NAME", flag="context")
    name: str = setting(
        "", "What metrics, notifications and reports call it; default: its address", "NAME", read=values.one_line
    )


class Lock(Table):
    """The Lease that keeps rollouts from running side by side."""

    namespace: str = setting(
        LEASE_NAMESPACE, "Namespace of Lease, record and memory", "NAMESPACE", read=values.namespace
    )
    duration: Duration = setting(Duration(30), "How long it goes unrenewed before another process may take it")

    @property
    def seconds(self) -> int:
        """The duration as it stands in the Lease."""
        return max(1, round(self.duration))


class Nodes(Table):
    """Which nodes, and what becomes of those that cannot be rebooted."""

    selector: str = setting(
        "",
        "Nodes with these labels, as kubectl takes them",
        "SELECTOR",
        read=values.label_selector,
        flag="selector",
        short="-l",
    )
    node: tuple[str, ...] = setting((), "Only this node", "NAME", read=values.node_name, flag="node")
    exclude: tuple[str, ...] = setting(
        (), "Leave this node, or pattern, out", "NAME", read=values.node_name, flag="exclude"
    )
    allow: tuple[str, ...] = setting(
        (), f"{', '.join(Allow)}, or a rival's name", words=(*Allow, *RIVALS), flag="allow"
    )
    skip: tuple[Skip, ...] | None = setting(None, "blocked: leave out nodes with blockers", flag="skip")


class Detect(Table):
    """What says that a node needs a reboot."""

    sources: tuple[Source, ...] = setting(
        DEFAULT_SOURCES,
        "Any of these will do: update-engine, annotation (reboot-needed on the Node), reboot-required (the file in "
        "/run), rpm-ostree (a staged deployment), command (detect.command)",
        "SOURCE",
    )
    command: str = setting(
        "",
        "Command that tells, by exit status 0, that its host needs a reboot; run as the SSH user, 15 s at most",
        "COMMAND",
        read=values.one_line,
    )


class Ssh(Table):
    """How hosts are reached."""

    executor: Executor = setting(Executor.SSH, "ssh, or ansible: as your inventory says", flag="executor")
    inventory: Path | None = setting(
        None, "As Ansible reads it; default: the Nodes' addresses", flag="inventory", short="-i"
    )
    user: str = setting("", f"Default: the SSH configuration's, else {DEFAULT_SSH_USER}", "USER", flag="ssh-user")
    port: int | None = setting(
        None, f"Default: the SSH configuration's, else {DEFAULT_SSH_PORT}", "PORT", flag="ssh-port", least=1, most=65535
    )
    key: Path | None = setting(None, "Private key; default: the agent's, ~/.ssh", flag="ssh-key")
    known_hosts: Path | None = setting(None, "Host keys to trust; default: as ssh has them", flag="known-hosts")
    config: Path | None = setting(None, "OpenSSH configuration, or none; default: ssh's own", flag="ssh-config")
    host_key_checking: HostKeyChecking = setting(
        HostKeyChecking.STRICT, "strict or accept-new", "MODE", flag="host-key-checking"
    )
    probe_timeout: Duration = setting(Duration(60), "How long one host may take to answer")
    probe_concurrency: int = setting(50, "How many hosts are asked at once", least=1)


class Waves(Table):
    """How many nodes at once, and which of them first."""

    max_unavailable: Count | None = setting(
        None, "Most nodes away at once, 3 or 25%; default: 1", flag="max-unavailable"
    )
    max_failures: Count = setting(
        _POLICY.max_failures, "Start no further node after so many failed", flag="max-failures"
    )
    strategy: Strategy = setting(_POLICY.strategy, "waves, or rolling: next as one is back", flag="strategy")
    canary: int = setting(_POLICY.canary, "Reboot this many first, one at a time", flag="canary", least=0)
    spread_by: str = setting(
        _POLICY.spread_by,
        "One value of this label in a wave: one zone",
        "LABEL",
        read=values.label_name,
        flag="spread-by",
    )
    control_plane: ControlPlaneOrder = setting(
        _POLICY.control_plane, "last, first, exclude; one at a time", flag="control-plane"
    )
    control_plane_selector: str = setting(
        _POLICY.control_plane_selector,
        "Nodes of the control plane besides those whose role label or taint says so: node.kubernetes.io/controller "
        "for Typhoon",
        "SELECTOR",
        read=values.label_selector,
    )
    ramp: tuple[Count, ...] = setting(
        (),
        "Sizes of the first waves, the last for all that follow: 1,10%,25%; never above waves.max-unavailable",
        "COUNTS",
    )
    health_checks: int = setting(_GATES.health_checks, "How many good checks in a row settle a wave", least=1)
    settle_timeout: Duration = setting(
        _POLICY.settle_timeout, "Time for moved pods to be available again", read=values.duration, flag="settle-timeout"
    )
    soak: Duration = setting(_GATES.soak, "Pause between two waves", read=values.duration)
    stop: StopMode = setting(
        StopMode.FINISH, "At the first Ctrl-C: finish the nodes in flight, or revert those that are not rebooting yet"
    )


class Drain(Table):
    """How a node is emptied."""

    timeout: Duration = setting(_DRAIN.timeout, "Time for a node's pods to leave", flag="drain-timeout")
    grace_period: int | None = setting(
        _DRAIN.grace_period,
        "For pods to end; default: each pod's own",
        "SECONDS",
        flag="grace-period",
        least=0,
        most=LONGEST,
    )
    force: bool = setting(_DRAIN.force, "Evict pods that nothing will start again", flag="force")
    delete_emptydir_data: bool = setting(
        _DRAIN.delete_emptydir_data, "The default; --no-delete-… refuses to", flag="delete-emptydir-data"
    )
    disable_eviction: bool = setting(
        _DRAIN.disable_eviction, "Delete pods: disruption budgets are ignored", flag="disable-eviction"
    )
    pod_selector: str = setting(
        _DRAIN.pod_selector,
        "Evict only these pods; the reboot ends others",
        "SELECTOR",
        read=values.label_selector,
        flag="pod-selector",
    )
    skip_wait_for_delete_timeout: int = setting(
        _DRAIN.skip_wait_for_delete_timeout,
        "Do not wait for pods that should have been gone for longer than this; 0 waits for all",
        "SECONDS",
        least=0,
        most=LONGEST,
    )
    delay: Duration = setting(
        _POLICY.courtesy.drain_delay, "Pause between the cordon and the first eviction", read=values.duration
    )
    prefer_no_schedule_taint: bool = setting(
        True, "Taint nodes that wait for their turn PreferNoSchedule, so that evicted pods go to nodes that are done"
    )
    exclude_from_load_balancers: Duration = setting(
        _POLICY.exclude_from_load_balancers,
        "Take a node out of external load balancers, and wait this long before its drain; 0s: leave it in",
        read=values.duration,
    )


class Reboot(Table):
    """How a host is rebooted, and how long that may take."""

    timeout: Duration = setting(_POLICY.reboot_timeout, "Time for a host to come back", flag="reboot-timeout")
    ready_timeout: Duration = setting(_POLICY.ready_timeout, "Time for it to be Ready then", flag="ready-timeout")
    delay: Duration = setting(
        _POLICY.courtesy.reboot_delay, "Pause between the end of the drain and the reboot", read=values.duration
    )
    command: str = setting(
        "",
        "Command that reboots a host, run as the SSH user. Default: systemctl reboot, through sudo -n",
        "COMMAND",
        read=values.one_line,
    )
    pre_playbook: Path | None = setting(
        None, "Ansible playbook to run on each drained node; if it fails, the node is given back"
    )
    post_playbook: Path | None = setting(
        None, "The same on each node that is Ready again; if it fails, the node stays cordoned"
    )


class Gates(Table):
    """What is asked before a node is started, rebooted or given back."""

    window: tuple[str, ...] = setting(
        (), "Start nodes then: [DAYS] HH:MM LENGTH [ZONE]", "WINDOW", read=values.window, flag="window", between=";"
    )
    freeze: tuple[str, ...] = setting(
        (),
        "Start no node then, window or not: 2026-12-20..2027-01-04, each year 12-20..01-04, last fri; with HH:MM "
        "LENGTH where it is no whole day, and a ZONE",
        "FREEZE",
        read=values.freeze,
        between=";",
    )
    calendar: Path | None = setting(
        None, "Start no node during the events of this iCalendar file; operate reads it at each pass"
    )
    wait_window: bool = setting(False, "Wait for the next window instead of ending with what is left")
    interactive: bool = setting(False, "Ask before each wave", flag="interactive")
    command: str = setting(
        "",
        "Command to run before the rollout, each wave and each node; it holds them until it succeeds",
        "COMMAND",
        read=values.command_words,
    )
    timeout: Duration = setting(_GATES.timeout, "How long pods, alerts or the gate command may hold a node")
    blocking_pod_selector: tuple[str, ...] = setting(
        (),
        "Do not start a node while a pod with these labels runs on it",
        "SELECTOR",
        read=values.label_selector,
        between=";",
    )
    before_reboot_annotations: tuple[str, ...] = setting(
        (), "Drain a node only once its checks have set these annotations to true", "NAME", read=values.label_name
    )
    after_reboot_annotations: tuple[str, ...] = setting(
        (), "Give a rebooted node back only once its checks have set these to true", "NAME", read=values.label_name
    )
    hook_prefix: str = setting(
        _HOOKS.prefix,
        "Prefix of the labels before-reboot and after-reboot that ask for checks",
        "PREFIX",
        read=values.label_prefix,
    )
    hook_timeout: Duration = setting(_HOOKS.timeout, "How long checks may take")


class PoolTable(Table):
    """Nodes with rules of their own; they belong to the first pool that matches. None: the rollout's rule."""

    name: str = setting("", "What it is called: web", "NAME", read=values.pool_name, is_required=True)
    selector: str = setting("", "Its nodes", "SELECTOR", read=values.label_selector, is_required=True)
    after: tuple[str, ...] = setting((), "Pools that come before this one", "NAME")
    max_unavailable: Count | None = setting(None, "Most of its nodes away at once")
    canary: int | None = setting(None, "Reboot this many first, one at a time", least=0)
    ramp: tuple[Count, ...] | None = setting(None, "Sizes of its first waves", "COUNTS")
    strategy: Strategy | None = setting(None, "Waves, or rolling")
    spread_by: str | None = setting(None, "One value of this label in a wave", "LABEL", read=values.label_name)
    reboot_idle: bool | None = setting(None, "Also reboot its nodes with no update staged")
    drain_timeout: Duration | None = setting(None, "Time for a node's pods to leave")
    reboot_timeout: Duration | None = setting(None, "Time for a host to come back")
    ready_timeout: Duration | None = setting(None, "Time for it to be Ready then")
    window: tuple[str, ...] = setting(
        (), "Start its nodes only then, and within gates.window", "WINDOW", read=values.window, between=";"
    )


class CriticalTable(Table):
    """Pods that are critical: their evictions wait as for a disruption budget with this minAvailable."""

    namespace: str = setting("", "Their namespace", "NAMESPACE", read=values.namespace, is_required=True)
    selector: str = setting("", "Their labels", "SELECTOR", read=values.label_selector, is_required=True)
    min_available: int = setting(0, "So many of them stay Ready", "N", least=1, is_required=True)


class Settings(Table):
    """All tables of the file."""

    cluster: Cluster = Cluster()
    lock: Lock = Lock()
    nodes: Nodes = Nodes()
    detect: Detect = Detect()
    ssh: Ssh = Ssh()
    waves: Waves = Waves()
    drain: Drain = Drain()
    reboot: Reboot = Reboot()
    gates: Gates = Gates()
    alerts: Alerts = Alerts()
    labels: Labels = Labels()
    output: Output = Output()
    metrics: Metrics = Metrics()
    notify: Notify = Notify()
    operate: Operate = Operate()
    evidence: Evidence = Evidence()
    fleetlock: FleetLock = FleetLock()
    pool: tuple[PoolTable, ...] = ()
    critical: tuple[CriticalTable, ...] = ()


LISTS: Mapping[str, type[Table]] = {"pool": PoolTable, "critical": CriticalTable}
"""Tables of which there may be any number."""


@cache
def settings() -> Mapping[str, Setting]:
    """Every setting but those of `LISTS`, by its dotted name, in the order of the schema."""
    tables = {name: kind for name, kind in get_type_hints(Settings).items() if name not in LISTS}
    return {item.name: item for table, kind in tables.items() for item in settings_of(kind, f"{table}.")}


@cache
def settings_in(table: str) -> Mapping[str, Setting]:
    """Those of one of the `LISTS`, by key."""
    return {item.name: item for item in settings_of(LISTS[table])}
