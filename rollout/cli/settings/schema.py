"""Every setting there is, once: a table a subject, a field a key, with its help, its default and how it is read.

    [drain]
    timeout = "20m"

is `drain.timeout`: in a file that `--config` names, as `--set drain.timeout=20m`, and, as people type it often, as the
flag `--drain-timeout` and the variable `ROLLOUT_DRAIN_TIMEOUT`.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

from rollout.cli import terminal
from rollout.cli.settings.values import (
    AlertLabel,
    Command,
    EvidenceSource,
    Freeze,
    GateCommand,
    GroupSelector,
    GroupSlots,
    Label,
    LabelPrefix,
    Line,
    ListenAddress,
    Matcher,
    Name,
    Namespace,
    NodeName,
    Pause,
    PoolName,
    Principal,
    PrometheusUrl,
    PushgatewayUrl,
    Seconds,
    Selector,
    Setting,
    Table,
    Textfile,
    Time,
    Url,
    Window,
    flag,
    notify_urls,
    setting,
    settings_of,
)
from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, HostKeyChecking
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.notification import NotifyEvent
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Strategy
from rollout.model.quantity import Count, Duration
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
    UNHEALTHY = "unhealthy"


class Cluster(Table):
    """Which cluster."""

    kubeconfig: Path | None = flag(None, "Default: $KUBECONFIG, ~/.kube/config, the pod's own")
    context: Name = flag("", "Context of the kubeconfig; default: its current")
    name: Line = setting("", "What metrics, notifications and reports call it; default: its address")


class Lock(Table):
    """The Lease that keeps rollouts from running side by side."""

    namespace: Namespace = setting(LEASE_NAMESPACE, "Namespace of Lease, record and memory")
    duration: Duration = setting(Duration(30), "How long it goes unrenewed before another process may take it")

    @property
    def seconds(self) -> int:
        """The duration as it stands in the Lease."""
        return max(1, round(self.duration))


class Nodes(Table):
    """Which nodes, and what becomes of those that cannot be rebooted."""

    selector: Selector = flag("", "Nodes with these labels, as kubectl takes them", short="-l")
    node: tuple[NodeName, ...] = flag((), "Only this node")
    exclude: tuple[NodeName, ...] = flag((), "Leave this node, or pattern, out")
    allow: tuple[Annotated[str, Setting("WORD", words=(*Allow, *RIVALS))], ...] = flag(
        (), f"{', '.join(Allow)}, a rival"
    )
    skip: tuple[Skip, ...] | None = flag(None, "blocked: leave out nodes with blockers")


class Detect(Table):
    """What says that a node needs a reboot."""

    sources: tuple[Source, ...] = setting(
        DEFAULT_SOURCES,
        "Any of these will do: update-engine, annotation (reboot-needed on the Node), reboot-required (the file in "
        "/run), rpm-ostree (a staged deployment), command (detect.command)",
    )
    command: Command = setting("", "A host needs a reboot where this exits with 0; as the SSH user, 15 s at most")


class Ssh(Table):
    """How hosts are reached."""

    executor: Executor = flag(Executor.SSH, "ssh, or ansible: as your inventory says")
    inventory: Path | None = flag(None, "As Ansible reads it; default: the Nodes' addresses", short="-i")
    user: Name = flag("", f"Default: as ssh has it, else {DEFAULT_SSH_USER}", "ssh-user")
    port: int | None = flag(None, f"Default: as ssh has it, else {DEFAULT_SSH_PORT}", "ssh-port", least=1, most=65535)
    key: Path | None = flag(None, "Private key; default: the agent's, ~/.ssh", "ssh-key")
    known_hosts: Path | None = flag(None, "Host keys to trust; default: as ssh has them")
    config: Path | None = flag(None, "OpenSSH configuration, or none; default: ssh's own", "ssh-config")
    host_key_checking: HostKeyChecking = flag(HostKeyChecking.STRICT, "strict or accept-new")
    probe_timeout: Duration = setting(Duration(60), "How long one host may take to answer")
    probe_concurrency: int = setting(50, "How many hosts are asked at once", least=1)


class Waves(Table):
    """How many nodes at once, and which of them first."""

    max_unavailable: Count | None = flag(None, "Most nodes away at once, 3 or 25%; default: 1")
    max_failures: Count = flag(_POLICY.max_failures, "Start no further node after so many failed")
    strategy: Strategy = flag(_POLICY.strategy, "waves, or rolling: next as one is back")
    canary: int = flag(_POLICY.canary, "Reboot this many first, one at a time", least=0)
    spread_by: Label = flag(_POLICY.spread_by, "One value of this label in a wave: one zone")
    control_plane: ControlPlaneOrder = flag(_POLICY.control_plane, "last, first, exclude; one at a time")
    control_plane_selector: Selector = setting(
        _POLICY.control_plane_selector,
        "Nodes of the control plane besides those whose role label or taint says so: node.kubernetes.io/controller "
        "for Typhoon",
    )
    ramp: tuple[Count, ...] = setting((), "Sizes of the first waves, the last for all others: 1,10%,25%")
    health_checks: int = setting(_GATES.health_checks, "How many good checks in a row settle a wave", least=1)
    settle_timeout: Pause = flag(_POLICY.settle_timeout, "Time for moved pods to be available again")
    soak: Pause = setting(_GATES.soak, "Pause between two waves")
    stop: StopMode = setting(StopMode.FINISH, "At Ctrl-C finish the nodes in flight, or revert those not rebooting yet")


class Drain(Table):
    """How a node is emptied."""

    timeout: Duration = flag(_DRAIN.timeout, "Time for a node's pods to leave", "drain-timeout")
    grace_period: Seconds | None = flag(_DRAIN.grace_period, "For pods to end; default: each pod's own", least=0)
    force: bool = flag(_DRAIN.force, "Evict pods that nothing will start again")
    delete_emptydir_data: bool = flag(_DRAIN.delete_emptydir_data, "The default; --no-delete-… refuses to")
    disable_eviction: bool = flag(_DRAIN.disable_eviction, "Delete pods: disruption budgets are ignored")
    pod_selector: Selector = flag(_DRAIN.pod_selector, "Evict only these pods; the reboot ends others")
    skip_wait_for_delete_timeout: Seconds = setting(
        _DRAIN.skip_wait_for_delete_timeout,
        "Do not wait for pods that should have been gone for longer than this; 0 waits for all",
        least=0,
    )
    delay: Pause = setting(_POLICY.courtesy.drain_delay, "Pause between the cordon and the first eviction")
    prefer_no_schedule_taint: bool = setting(True, "Taint waiting nodes PreferNoSchedule: pods go to those done")
    exclude_from_load_balancers: Pause = setting(
        _POLICY.exclude_from_load_balancers,
        "Take a node out of external load balancers, and wait this long before its drain; 0s: leave it in",
    )


class Reboot(Table):
    """How a host is rebooted, and how long that may take."""

    timeout: Duration = flag(_POLICY.reboot_timeout, "Time for a host to come back", "reboot-timeout")
    ready_timeout: Duration = flag(_POLICY.ready_timeout, "Time for it to be Ready then")
    delay: Pause = setting(_POLICY.courtesy.reboot_delay, "Pause between the end of the drain and the reboot")
    command: Command = setting("", "Reboots a host, as the SSH user. Default: systemctl reboot, through sudo -n")
    pre_playbook: Path | None = setting(None, "Ansible playbook for each drained node; if it fails, it is given back")
    post_playbook: Path | None = setting(None, "The same for each that is Ready again; if it fails, it stays cordoned")


class Gates(Table):
    """What is asked before a node is started, rebooted or given back."""

    window: tuple[Window, ...] = flag((), "Start nodes then: [DAYS] HH:MM LENGTH [ZONE]")
    freeze: tuple[Freeze, ...] = setting(
        (),
        "Start no node then, window or not: 2026-12-20..2027-01-04, each year 12-20..01-04, last fri; with HH:MM "
        "LENGTH where it is no whole day, and a ZONE",
    )
    calendar: Path | None = setting(None, "Start no node during this iCalendar file's events, read at each pass")
    wait_window: bool = setting(False, "Wait for the next window instead of ending with what is left")
    interactive: bool = flag(False, "Ask before each wave")
    command: GateCommand = setting("", "Command that holds rollout, waves and nodes until it succeeds")
    timeout: Duration = setting(_GATES.timeout, "How long pods, alerts or the gate command may hold a node")
    blocking_pod_selector: tuple[Selector, ...] = setting((), "Start no node that runs a pod with these labels")
    before_reboot_annotations: tuple[Label, ...] = setting((), "Drain a node once its checks set these to true")
    after_reboot_annotations: tuple[Label, ...] = setting((), "Uncordon it once its checks set these to true")
    hook_prefix: LabelPrefix = setting(_HOOKS.prefix, "Prefix of the labels before-reboot and after-reboot")
    hook_timeout: Duration = setting(_HOOKS.timeout, "How long checks may take")


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class Output(Table):
    """How to print, and what is written down."""

    format: OutputFormat = flag(OutputFormat.TEXT, "text, wide, json, yaml, or name", "output", short="-o")
    verbose: int = flag(0, "Print more: stages; -vv: requests", short="-v", least=0)
    journal: Path | None = setting(None, "Journal file. Default: one per run in $XDG_STATE_HOME/rollout/runs")

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.format in (OutputFormat.JSON, OutputFormat.YAML, OutputFormat.NAME)

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit, and every column."""
        return None if self.format is OutputFormat.WIDE else terminal.width()

    def show(
        self,
        document: object,
        text: Callable[[], str],
        *,
        is_prose: bool = False,
        nodes: Iterable[str] = (),
    ) -> None:
        """Show what a command found: as a document, as names of its `nodes`, or as text, of which prose is wrapped."""
        if self.format is OutputFormat.NAME:
            terminal.show_names(nodes)
        elif self.as_json:
            terminal.show_document(document, as_yaml=self.format is OutputFormat.YAML)
        elif is_prose:
            terminal.show_lines(text())
        else:
            terminal.show(text())


class Alerts(Table):
    """Prometheus' firing alerts that hold nodes."""

    prometheus_url: PrometheusUrl = setting("", "Start no node while alerts fire here, or it is away")
    alertmanager_url: PrometheusUrl = setting("", "Alerts that this Alertmanager has silenced do not count")
    silence: AlertLabel = setting(
        "",
        "Have that Alertmanager silence, while a node is under way, alerts in which this label is its name or address: "
        "node, instance",
    )
    matchers: tuple[Matcher, ...] = setting((), 'Only alerts with these labels count: severity=~"critical|page"')


class Labels(Table):
    """Labels on nodes for other programs."""

    fluo: bool = setting(False, "Keep the labels id, group and version up to date, as FLUO's agent does")


class Metrics(Table):
    """Where metrics go."""

    textfile: Textfile | None = setting(None, "Keep metrics in this .prom file, for node_exporter to collect")
    pushgateway: PushgatewayUrl = setting(
        "",
        "Push metrics to this Pushgateway; a URL with a password: in the variable",
        hidden_in="ROLLOUT_METRICS_PUSHGATEWAY",
    )
    listen: ListenAddress = setting("", "operate: serve /metrics, /healthz, /readyz; :9732 is all addresses")


class Notify(Table):
    """Who hears of a rollout that nobody watches."""

    url: tuple[Url, ...] = setting(
        (),
        "Send notifications there: https://… gets JSON, an Apprise URL (slack://…, mailto://…) a text. A secret: "
        "best in the variable",
        check=notify_urls,
        hidden_in="ROLLOUT_NOTIFY",
    )
    on: tuple[NotifyEvent, ...] = setting(tuple(NotifyEvent), "Notify only on these events. Default: all")
    held_after: Duration = setting(Duration(600), "How long an eviction may be held before it is told of")


class Operate(Table):
    """The pace of unattended passes."""

    every: Duration = flag(Duration(600), "Time from the start of one pass to the next")
    active_deadline: Duration | None = flag(None, "Time for a pass: no node starts that would not be back by then")
    finish_by: Time = flag("", "By when all is to be done: it tells as soon as its forecast is later")


class Evidence(Table):
    """What another cluster has to prove of a version before operate takes it."""

    source: EvidenceSource = flag("", "Take only versions proven by file, folder, URL or configmap", "require-evidence")
    cluster: Principal = setting("", "The cluster that proves: its cluster.name or UID, and its principal")
    allowed_signers: Path | None = setting(None, "OpenSSH's file of who may sign: PRINCIPAL KEY-TYPE KEY")
    nodes: int = setting(1, "How many nodes have to run it there", least=1)
    hours: int = setting(24, "For how many hours since the last of them was rebooted", least=0)
    max_age: Duration = setting(Duration(7 * 86400), "How old evidence may be")


class FleetLock(Table):
    """The FleetLock server: where it listens, and how many hosts of which group may reboot at a time."""

    listen: ListenAddress = flag("0.0.0.0:8080", "Where hosts ask: :8080 is all addresses")
    tls_cert: Path | None = flag(None, "Serve HTTPS with this certificate (PEM, with its chain)")
    tls_key: Path | None = flag(None, "The certificate's private key")
    slots: Count = flag(Count(1), "Hosts of a group on their way at once: 1, or 25%")
    group: tuple[GroupSlots, ...] = flag((), "Slots of a group; others are refused then")
    group_selector: tuple[GroupSelector, ...] = flag((), "Only nodes with these labels are of this group")
    slot_timeout: Duration = flag(Duration(3600), "Time for a granted host to come back")


class PoolTable(Table):
    """Nodes with rules of their own; they belong to the first pool that matches. None: the rollout's rule."""

    name: PoolName = setting("", "What it is called: web", is_required=True)
    selector: Selector = setting("", "Its nodes", is_required=True)
    after: tuple[Name, ...] = setting((), "Pools that come before this one")
    max_unavailable: Count | None = setting(None, "Most of its nodes away at once")
    canary: int | None = setting(None, "Reboot this many first, one at a time", least=0)
    ramp: tuple[Count, ...] | None = setting(None, "Sizes of its first waves")
    strategy: Strategy | None = setting(None, "Waves, or rolling")
    spread_by: Label | None = setting(None, "One value of this label in a wave")
    reboot_idle: bool | None = setting(None, "Also reboot its nodes with no update staged")
    drain_timeout: Duration | None = setting(None, "Time for a node's pods to leave")
    reboot_timeout: Duration | None = setting(None, "Time for a host to come back")
    ready_timeout: Duration | None = setting(None, "Time for it to be Ready then")
    window: tuple[Window, ...] = setting((), "Start its nodes only then, and within gates.window")


class CriticalTable(Table):
    """Pods that are critical: their evictions wait as for a disruption budget with this minAvailable."""

    namespace: Namespace = setting("", "Their namespace", is_required=True)
    selector: Selector = setting("", "Their labels", is_required=True)
    min_available: int = setting(0, "So many of them stay Ready", least=1, is_required=True)


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


_KINDS = get_type_hints(Settings)
LISTS = tuple(name for name, kind in _KINDS.items() if get_args(kind))
"""Tables of which there may be any number."""
TABLES: Mapping[str, type[Table]] = {
    name: get_args(kind)[0] if name in LISTS else kind for name, kind in _KINDS.items()
}


@cache
def settings_in(table: str) -> Mapping[str, Setting]:
    """Those of a table, by key."""
    return dict(settings_of(TABLES[table], table))


@cache
def settings() -> Mapping[str, Setting]:
    """Every setting but those of `LISTS`, by its dotted name, in the order of the schema."""
    return {item.name: item for table in TABLES if table not in LISTS for item in settings_in(table).values()}
