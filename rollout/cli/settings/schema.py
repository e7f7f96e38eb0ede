"""A class for each table of settings, a field for each key."""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, get_args, get_type_hints

from rollout.cli import terminal
from rollout.cli.settings.setting import Setting
from rollout.cli.settings.values import (
    AlertLabel,
    AlertmanagerUrl,
    Annotation,
    Command,
    EvidenceSource,
    Expression,
    Freeze,
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
    OperatorCommand,
    Pause,
    PoolName,
    Principal,
    PrometheusUrl,
    PushgatewayUrl,
    Resource,
    Seconds,
    Selector,
    SettingsTable,
    Textfile,
    Time,
    Url,
    Window,
    check_notify_urls,
    flag,
    setting,
    settings_of,
)
from rollout.model.detection import DEFAULT_SOURCES, UPDATE_SOURCES, Source
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER, HostKeyChecking
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.notification import NotifyEvent
from rollout.model.policy import (
    CompletionFallback,
    ControlPlaneOrder,
    DrainPolicy,
    Policy,
    Restart,
    Strategy,
)
from rollout.model.quantity import Count, Duration
from rollout.model.rivals import RIVALS
from rollout.model.update_checks import LONGEST_SILENCE

_POLICY = Policy()
_DRAIN = DrainPolicy()
_COMPLETION = _DRAIN.completion
_GATES = GatePolicy()
_HOOKS = HookPolicy()


class Executor(StrEnum):
    """How commands reach the hosts."""

    SSH = "ssh"
    ANSIBLE = "ansible"


class StopMode(StrEnum):
    """What the first signal does to nodes in flight."""

    FINISH = "finish"
    REVERT = "revert"


class Skip(StrEnum):
    """Nodes to skip instead of refusing to start."""

    BLOCKED = "blocked"


class Allow(StrEnum):
    """The values of `--allow` besides other coordinators' names."""

    BLOCKED = "blocked"
    CORDONED = "cordoned"
    HELD = "held"
    IDLE = "idle"
    UNHEALTHY = "unhealthy"


class ClusterSettings(SettingsTable):
    """The cluster to connect to."""

    kubeconfig: Path | None = flag(None, "Kubeconfig file; default: the one that kubectl uses")
    context: Name = flag("", "Kubeconfig context; default: the current context")
    name: Line = setting(
        "",
        "Name of the cluster in metrics, notifications and reports; default: the API server's"
        " address",
    )


class LockSettings(SettingsTable):
    """The lock against concurrent rollouts."""

    namespace: Namespace = setting(
        LEASE_NAMESPACE, "Namespace of the Lease, the rollout record and the failure history"
    )
    duration: Duration = setting(Duration(30), "How long the Lease stays valid without a renewal")

    @property
    def seconds(self) -> int:
        """The duration in whole seconds, at least 1."""
        return max(1, round(self.duration))


class NodesSettings(SettingsTable):
    """The nodes to reboot."""

    selector: Selector = flag("", "Select only nodes that match this label selector", short="-l")
    node: tuple[NodeName, ...] = flag((), "Select only nodes with this name; repeatable")
    exclude: tuple[NodeName, ...] = flag((), "Exclude nodes with this name or glob; repeatable")
    allow: tuple[Annotated[str, Setting("CONDITION", words=(*Allow, *RIVALS))], ...] = flag(
        (),
        "Proceed despite this condition, or include nodes with it: blocked, cordoned, held, idle,"
        " unhealthy, or a reboot coordinator such as kured; repeatable",
    )
    skip: tuple[Skip, ...] | None = flag(None, "Skip nodes that have blockers", metavar="blocked")


class DetectSettings(SettingsTable):
    """How to detect pending nodes."""

    sources: tuple[Annotated[Source, Setting("VALUE", words=UPDATE_SOURCES)], ...] = setting(
        DEFAULT_SOURCES,
        "Sources that report whether a node needs a reboot; any of: update-engine, annotation"
        " (reboot-needed on the Node), reboot-required (the file in /run), rpm-ostree (a staged"
        " deployment), bootc (a staged image), command (detect.command)",
    )
    command: Command = setting(
        "",
        "Command that exits with 0 if the host needs a reboot; it runs as the SSH user for at most"
        " 15 s",
    )
    max_check_age: Duration = setting(
        Duration(LONGEST_SILENCE),
        "How long a host may go without checking for updates before status reports it",
    )


class SshSettings(SettingsTable):
    """How to connect to the hosts."""

    executor: Executor = flag(
        Executor.SSH, "Connect with ssh (built in) or ansible", metavar="ssh|ansible"
    )
    inventory: Path | None = flag(
        None, "Ansible inventory; default: the Nodes' addresses", short="-i"
    )
    user: Name = flag(
        "", f"SSH user; default: from ssh_config, else {DEFAULT_SSH_USER}", "ssh-user"
    )
    port: int | None = flag(
        None,
        f"SSH port; default: from ssh_config, else {DEFAULT_SSH_PORT}",
        "ssh-port",
        least=1,
        most=65535,
    )
    key: Path | None = flag(None, "SSH private key; default: ssh-agent, then ~/.ssh", "ssh-key")
    known_hosts: Path | None = flag(None, "known_hosts file; default: from ssh_config")
    config: Path | None = flag(
        None, "ssh_config file, or none; default: ssh's own files", "ssh-config"
    )
    host_key_checking: HostKeyChecking = flag(
        HostKeyChecking.STRICT, "Host key checking: strict or accept-new", metavar="MODE"
    )
    probe_timeout: Duration = setting(Duration(60), "How long to wait for one host to respond")
    probe_concurrency: int = setting(50, "Maximum number of hosts queried at once", least=1)


class WavesSettings(SettingsTable):
    """How many nodes are rebooted at once, and in which order."""

    max_unavailable: Count | None = flag(
        None, "Maximum number of nodes unavailable at once, such as 3 or 25% [1]"
    )
    max_failures: Count = flag(_POLICY.max_failures, "Stop after this many nodes have failed")
    strategy: Strategy = flag(
        _POLICY.strategy, "Rollout strategy: waves or rolling", metavar="STRATEGY"
    )
    canary: int = flag(_POLICY.canary, "Reboot this many nodes first, one at a time", least=0)
    spread_by: Label = flag(
        _POLICY.spread_by,
        "Limit each wave to nodes with the same value of this label, such as the same zone",
    )
    control_plane: ControlPlaneOrder = flag(
        _POLICY.control_plane,
        "Reboot control-plane nodes last or first, or exclude them",
        metavar="WHEN",
    )
    control_plane_selector: Selector = setting(
        _POLICY.control_plane_selector,
        "Label selector of additional control-plane nodes, besides those with the role label or"
        " taint; for Typhoon: node.kubernetes.io/controller",
    )
    ramp: tuple[Count, ...] = setting(
        (), "Sizes of the first waves, such as 1,10%,25%; the last size applies to all later waves"
    )
    health_checks: int = setting(
        _GATES.health_checks,
        "How many consecutive health checks must pass for a wave to settle",
        least=1,
    )
    settle_timeout: Pause = flag(
        _POLICY.settle_timeout, "How long to wait for the replacements of evicted pods"
    )
    soak: Pause = setting(_GATES.soak, "How long to wait between waves")
    stop: StopMode = setting(
        StopMode.FINISH,
        "On Ctrl-C or SIGTERM: finish the nodes in flight, or return those that are not"
        " rebooting yet to service",
    )


class DrainSettings(SettingsTable):
    """How to drain a node."""

    timeout: Duration = flag(
        _DRAIN.timeout, "How long to wait for pods to terminate", "drain-timeout"
    )
    grace_period: Seconds | None = flag(
        _DRAIN.grace_period, "Termination grace period; default: each pod's own", least=0
    )
    force: bool = flag(_DRAIN.force, "Evict pods that have no controller")
    delete_emptydir_data: bool = flag(
        _DRAIN.delete_emptydir_data,
        "Evict pods that use emptyDir, whose data is lost (default); disable with"
        " --no-delete-emptydir-data",
    )
    disable_eviction: bool = flag(
        _DRAIN.disable_eviction,
        "Delete pods, bypassing PodDisruptionBudgets",
    )
    pod_selector: Selector = flag(
        _DRAIN.pod_selector,
        "Evict only pods that match this label selector; the reboot stops the other pods",
    )
    skip_wait_for_delete_timeout: Seconds = setting(
        _DRAIN.skip_wait_for_delete_timeout,
        "Do not wait for terminating pods whose grace period ended more than this many seconds"
        " ago; 0 waits for all pods",
        least=0,
    )
    wait_for_completion: tuple[Selector, ...] = setting(
        _COMPLETION.selectors,
        "Wait until pods that match this label selector have completed, instead of evicting them;"
        " job-name selects the pods of all Jobs",
    )
    wait_for_completion_timeout: Duration = setting(
        _COMPLETION.timeout,
        "How long to wait for the pods that drain.wait-for-completion selects; this time does not"
        " count toward drain.timeout",
    )
    wait_for_completion_fallback: CompletionFallback = setting(
        _COMPLETION.fallback,
        "What to do if the pods that drain.wait-for-completion selects do not complete in time:"
        " return the node to service without a reboot, or evict the pods",
    )
    restart: Restart = setting(
        _DRAIN.restart,
        "Set to blocked to restart a Deployment whose disruption budget never allows an eviction,"
        " so that the new pod is Ready before the old pod terminates",
    )
    delay: Pause = setting(
        _POLICY.courtesy.drain_delay, "How long to wait between the cordon and the first eviction"
    )
    prefer_no_schedule_taint: bool = setting(
        True,
        "Add a PreferNoSchedule taint to pending nodes, so that the scheduler prefers other nodes",
    )
    exclude_from_load_balancers: Pause = setting(
        _POLICY.exclude_from_load_balancers,
        "Remove a node from external load balancers this long before its drain; 0s turns this off",
    )


class RebootSettings(SettingsTable):
    """How to reboot a host."""

    timeout: Duration = flag(
        _POLICY.reboot_timeout, "How long to wait for a host to come back", "reboot-timeout"
    )
    ready_timeout: Duration = flag(
        _POLICY.ready_timeout, "How long to wait for a node to become Ready"
    )
    delay: Pause = setting(
        _POLICY.courtesy.reboot_delay, "How long to wait between the drain and the reboot"
    )
    command: Command = setting(
        "",
        "Command that reboots a host, run as the SSH user; default: systemctl reboot, with sudo -n",
    )
    rescue: OperatorCommand = setting(
        "",
        "Command that, for example, power-cycles the host through its baseboard management"
        " controller (BMC). It runs once, on the machine that runs rollout, for a host that has not"
        " come back within reboot.timeout",
    )
    rescue_timeout: Duration = setting(
        Duration(300),
        "How long reboot.rescue may take; rollout then waits up to reboot.timeout again for"
        " the host to come back",
    )
    pre_playbook: Path | None = setting(
        None,
        "Ansible playbook to run on each node after its drain; if it fails, the node is uncordoned"
        " without a reboot",
    )
    post_playbook: Path | None = setting(
        None,
        "Ansible playbook to run on each node after its reboot; if it fails, the node stays"
        " cordoned",
    )


class GatesSettings(SettingsTable):
    """What a node may have to wait for."""

    window: tuple[Window, ...] = flag(
        (), "Start draining nodes only in this window: [DAYS] HH:MM DURATION [ZONE]; repeatable"
    )
    freeze: tuple[Freeze, ...] = setting(
        (),
        "Do not start draining nodes in this period, even if a window is open:"
        " 2026-12-20..2027-01-04, 12-20..01-04 (every year) or last fri; to freeze only a part of"
        " the day, add HH:MM DURATION and a ZONE",
    )
    calendar: Path | None = setting(
        None,
        "Do not start draining nodes during the events of this iCalendar file; each pass reads the"
        " file again",
    )
    wait_window: bool = setting(
        False, "If nodes remain when no window is open, wait for the next window instead of exiting"
    )
    interactive: bool = flag(False, "Ask for confirmation before each wave")
    command: OperatorCommand = setting(
        "", "Command that must exit with 0 before the rollout, each wave and each node can start"
    )
    timeout: Duration = setting(
        _GATES.timeout,
        "How long blocking pods, alerts, unhealthy objects or gates.command may delay a node",
    )
    blocking_pod_selector: tuple[Selector, ...] = setting(
        (), "Do not start draining a node while it runs a pod that matches this label selector"
    )
    before_reboot_annotations: tuple[Annotation, ...] = setting(
        (), "Drain a node only after your checks have set these annotations to true"
    )
    after_reboot_annotations: tuple[Annotation, ...] = setting(
        (), "Uncordon a node only after your checks have set these annotations to true"
    )
    hook_prefix: LabelPrefix = setting(
        _HOOKS.prefix, "Prefix of the before-reboot and after-reboot labels"
    )
    hook_timeout: Duration = setting(
        _HOOKS.timeout, "How long to wait for checks to set their annotations"
    )


class OutputFormat(StrEnum):
    """How to print data."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class OutputSettings(SettingsTable):
    """The output and the journal."""

    format: OutputFormat = flag(
        OutputFormat.TEXT,
        "Output format: text, wide, json, yaml or name",
        "output",
        short="-o",
        metavar="FORMAT",
    )
    verbose: int = flag(
        0, "Print details: -v for each step, -vv for API requests", short="-v", least=0
    )
    journal: Path | None = setting(
        None, "Journal file; default: one per run in $XDG_STATE_HOME/rollout/runs"
    )

    @property
    def as_json(self) -> bool:
        """Whether the output is for programs."""
        return self.format in (OutputFormat.JSON, OutputFormat.YAML, OutputFormat.NAME)

    @property
    def width(self) -> int | None:
        """Return columns for text, or None for no limit."""
        return None if self.format is OutputFormat.WIDE else terminal.table_width()

    def show(
        self,
        document: object,
        text: Callable[[], str],
        *,
        is_prose: bool = False,
        nodes: Iterable[str] = (),
    ) -> None:
        """Print the `document`, the names of `nodes`, or the `text`, by the format.

        A terminal wraps the text if `is_prose`.
        """
        match self.format:
            case OutputFormat.NAME:
                terminal.show_names(nodes)
            case OutputFormat.JSON:
                terminal.show_document(document)
            case OutputFormat.YAML:
                terminal.show_document(document, as_yaml=True)
            case OutputFormat.TEXT | OutputFormat.WIDE if is_prose:
                terminal.show_lines(text())
            case OutputFormat.TEXT | OutputFormat.WIDE:
                terminal.show(text())


class AlertsSettings(SettingsTable):
    """Alerts in Prometheus that keep nodes from starting."""

    prometheus_url: PrometheusUrl = setting(
        "",
        "Do not start draining nodes while alerts fire in this Prometheus server, or while the"
        " server cannot be reached",
    )
    alertmanager_url: AlertmanagerUrl = setting(
        "", "Ignore alerts that this Alertmanager has silenced"
    )
    silence: AlertLabel = setting(
        "",
        "In Alertmanager, silence the alerts of nodes in flight; set this to the alert label"
        " that contains the node's name or address, such as node or instance",
    )
    matchers: tuple[Matcher, ...] = setting(
        (), 'Consider only alerts that match these matchers, such as severity=~"critical|page"'
    )


class LabelsSettings(SettingsTable):
    """Node labels for other programs."""

    fluo: bool = setting(
        False,
        "Maintain the id, group and version labels of nodes, as the agent of the Flatcar Linux"
        " Update Operator (FLUO) does",
    )
    conditions: bool = setting(
        False, "Set the Kubernetes node lifecycle conditions, such as DrainInProgress"
    )


class MetricsSettings(SettingsTable):
    """Where to send metrics."""

    textfile: Textfile | None = setting(
        None, "Write metrics to this .prom file, for node_exporter to collect"
    )
    pushgateway: PushgatewayUrl = setting(
        "",
        "Push metrics to this Pushgateway; if the URL contains a password, use the environment"
        " variable ROLLOUT_METRICS_PUSHGATEWAY instead",
        private_variable="ROLLOUT_METRICS_PUSHGATEWAY",
    )
    listen: ListenAddress = setting(
        "",
        "Address for /metrics, /healthz, /readyz and a web page about the rollout, in operate and"
        " in fleetlock serve; :9732 listens on all addresses",
    )


class NotifySettings(SettingsTable):
    """Where to send notifications."""

    url: tuple[Url, ...] = setting(
        (),
        "Send notifications to this URL: JSON to https://…, text to an Apprise URL (slack://…,"
        " mailto://…); if the URL contains a secret, use the environment variable ROLLOUT_NOTIFY"
        " instead",
        check=check_notify_urls,
        private_variable="ROLLOUT_NOTIFY",
    )
    on: tuple[NotifyEvent, ...] = setting(
        tuple(NotifyEvent), "Notify only about these events", metavar="EVENT"
    )
    held_after: Duration = setting(
        Duration(600), "Notify when an eviction has been blocked for this long"
    )


class OperateSettings(SettingsTable):
    """The pace of unattended passes."""

    every: Duration = flag(
        Duration(600), "Time from the start of one pass to the start of the next"
    )
    active_deadline: Duration | None = flag(
        None, "Maximum duration of a pass; only nodes that can finish in time are drained"
    )
    finish_by: Time = flag(
        "", "Deadline for all nodes; warn if the rollout is expected to finish later"
    )


class EvidenceSettings(SettingsTable):
    """What another cluster must have verified about a version."""

    source: EvidenceSource = flag(
        "",
        "Reboot only into versions with evidence in SOURCE: a file, a directory, a URL, or"
        ' "configmap"',
        "require-evidence",
    )
    cluster: Principal = setting(
        "",
        "Name (cluster.name) or UID of the cluster whose evidence is required; this is also its"
        " principal in evidence.allowed-signers",
    )
    allowed_signers: Path | None = setting(
        None, "OpenSSH allowed_signers file, with lines such as PRINCIPAL KEY-TYPE KEY"
    )
    nodes: int = setting(1, "How many nodes of that cluster must run the version", least=1)
    hours: int = setting(
        24, "How many hours must have passed since the last of those nodes was rebooted", least=0
    )
    max_age: Duration = setting(Duration(7 * 86400), "Maximum age of the evidence")


class FleetLockSettings(SettingsTable):
    """The FleetLock server and its groups."""

    listen: ListenAddress = flag(
        "0.0.0.0:8080", "Address to listen on; :8080 listens on all addresses"
    )
    tls_cert: Path | None = flag(None, "Serve HTTPS with this certificate (PEM, with its chain)")
    tls_key: Path | None = flag(None, "Private key of the certificate")
    slots: Count = flag(
        Count(1), "Maximum number of hosts per group that may reboot at once, such as 1 or 25%"
    )
    group: tuple[GroupSlots, ...] = flag(
        (),
        "Number of slots for one group; if set, requests from other groups are denied; repeatable",
    )
    group_selector: tuple[GroupSelector, ...] = flag(
        (), "Label selector that a node must match to use this group; repeatable"
    )
    slot_timeout: Duration = flag(
        Duration(3600),
        "How long a host may take to request its reboot again after its node is drained,"
        " and to come back after its reboot is granted",
    )


class PoolSettings(SettingsTable):
    """Nodes with rules of their own. None means the rollout's rule."""

    name: PoolName = setting("", "Name of the pool, such as web", is_required=True)
    selector: Selector = setting("", "Label selector of the pool's nodes", is_required=True)
    after: tuple[Name, ...] = setting((), "Pools that must be done before this pool starts")
    max_unavailable: Count | None = setting(
        None, "Maximum number of the pool's nodes unavailable at once"
    )
    canary: int | None = setting(None, "Reboot this many nodes first, one at a time", least=0)
    ramp: tuple[Count, ...] | None = setting(
        None, "Sizes of the pool's first waves, such as 1,10%,25%"
    )
    strategy: Strategy | None = setting(None, "Strategy for the pool: waves or rolling")
    spread_by: Label | None = setting(
        None, "Limit the pool's nodes in each wave to those with the same value of this label"
    )
    reboot_idle: bool | None = setting(None, "Also reboot nodes without a staged update")
    drain_timeout: Duration | None = setting(None, "How long to wait for pods to terminate")
    reboot_timeout: Duration | None = setting(None, "How long to wait for a host to come back")
    ready_timeout: Duration | None = setting(None, "How long to wait for a node to become Ready")
    window: tuple[Window, ...] = setting(
        (), "Start draining the pool's nodes only if both this window and gates.window are open"
    )


class CriticalSettings(SettingsTable):
    """Critical pods, evicted as if a PodDisruptionBudget had this minAvailable."""

    namespace: Namespace = setting("", "Namespace of the pods", is_required=True)
    selector: Selector = setting("", "Label selector of the pods", is_required=True)
    min_available: int = setting(
        0, "Minimum number of these pods that must stay Ready", least=1, is_required=True
    )


class HealthySettings(SettingsTable):
    """Objects that must be healthy before a node starts and when a wave settles."""

    resource: Resource = setting(
        "",
        "Object that must be healthy, as PLURAL.GROUP/NAMESPACE/NAME, such as"
        " cephclusters.ceph.rook.io/rook-ceph/rook-ceph",
        is_required=True,
    )
    expression: Expression = setting(
        "",
        "CEL expression that is true while the object is healthy, such as"
        " status.ceph.health == 'HEALTH_OK'",
        is_required=True,
    )


class Settings(SettingsTable):
    """All tables. A field `a_b` is the table `a.b`."""

    cluster: ClusterSettings = ClusterSettings()
    lock: LockSettings = LockSettings()
    nodes: NodesSettings = NodesSettings()
    detect: DetectSettings = DetectSettings()
    ssh: SshSettings = SshSettings()
    waves: WavesSettings = WavesSettings()
    drain: DrainSettings = DrainSettings()
    reboot: RebootSettings = RebootSettings()
    gates: GatesSettings = GatesSettings()
    alerts: AlertsSettings = AlertsSettings()
    labels: LabelsSettings = LabelsSettings()
    output: OutputSettings = OutputSettings()
    metrics: MetricsSettings = MetricsSettings()
    notify: NotifySettings = NotifySettings()
    operate: OperateSettings = OperateSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    fleetlock: FleetLockSettings = FleetLockSettings()
    pool: tuple[PoolSettings, ...] = ()
    critical: tuple[CriticalSettings, ...] = ()
    gates_healthy: tuple[HealthySettings, ...] = ()


def field_of(table: str) -> str:
    """Return the name of a table's field in `Settings`."""
    return table.replace(".", "_")


_KINDS = {name.replace("_", "."): kind for name, kind in get_type_hints(Settings).items()}
LISTS = tuple(name for name, kind in _KINDS.items() if get_args(kind))
"""The tables that can occur any number of times."""
TABLES: Mapping[str, type[SettingsTable]] = {
    name: get_args(kind)[0] if name in LISTS else kind for name, kind in _KINDS.items()
}


@cache
def settings_in(table: str) -> Mapping[str, Setting]:
    """Return the settings of a table by key."""
    return dict(settings_of(TABLES[table], table))


@cache
def settings() -> Mapping[str, Setting]:
    """Return all settings by dotted name, without `LISTS`."""
    return {
        item.name: item
        for table in TABLES
        if table not in LISTS
        for item in settings_in(table).values()
    }
