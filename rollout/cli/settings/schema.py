"""Every setting there is, once: a table a subject, a field a key, with its help, its default and how it is read.

    [drain]
    timeout = "20m"

is `drain.timeout`: in a file that `--config` names, as `--set drain.timeout=20m`, and, as people type it often, as the
flag `--drain-timeout` and the variable `ROLLOUT_DRAIN_TIMEOUT`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from rollout.cli import terminal
from rollout.cli.settings import values
from rollout.model.detection import DEFAULT_SOURCES, Source
from rollout.model.gates import GatePolicy, HookPolicy
from rollout.model.host import DEFAULT_SSH_PORT, DEFAULT_SSH_USER
from rollout.model.marks import LEASE_NAMESPACE
from rollout.model.notification import NotifyEvent
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Sharing, Strategy
from rollout.model.quantity import LONGEST, Count, Duration

_POLICY, _DRAIN, _GATES, _HOOKS = Policy(), DrainPolicy(), GatePolicy(), HookPolicy()


_A_PORT = {"least": 1, "most": 65535}


@dataclass(frozen=True, slots=True)
class Key:
    """How a setting is written, besides its type.

    `read` makes a value of one text. `flag` and `short` are for what people type. `variable` is for a secret without a
    flag, whose value no message shows. What separates the items of a list in one text is `between`; a flag of a list is
    repeatable as well. `check` looks at a whole list.
    """

    metavar: str = ""
    read: Callable[[str], Any] | None = None
    flag: str = ""
    short: str = ""
    variable: str = ""
    between: str = ","
    check: Callable[[Sequence[str]], object] | None = None
    least: int | None = None
    most: int | None = None


def setting(help: str, metavar: str = "", **how: Any) -> msgspec.Meta:  # noqa: A002 - what it is
    """The declaration of a setting: its help, and a `Key`."""
    return msgspec.Meta(description=help, extra={"key": Key(metavar, **how)})


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A table of the file."""


class HostKeys(StrEnum):
    """What to do with host keys."""

    STRICT = "strict"
    ACCEPT_NEW = "accept-new"
    OFF = "off"


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


class OutputFormat(StrEnum):
    """How data is printed."""

    TEXT = "text"
    JSON = "json"
    WIDE = "wide"
    YAML = "yaml"
    NAME = "name"


class Cluster(Table, frozen=True):
    """Which cluster."""

    kubeconfig: Annotated[
        Path | None, setting("Default: $KUBECONFIG, ~/.kube/config, the pod's own", "FILE", flag="kubeconfig")
    ] = None
    context: Annotated[str, setting("Context of the kubeconfig; default: its current", "NAME", flag="context")] = ""
    name: Annotated[
        str,
        setting("What metrics, notifications and reports call it; default: its address", "NAME", read=values.one_line),
    ] = ""


class Lock(Table, frozen=True):
    """The Lease that keeps rollouts from running side by side."""

    namespace: Annotated[str, setting("Namespace of Lease, record and memory", "NAMESPACE", read=values.namespace)] = (
        LEASE_NAMESPACE
    )
    duration: Annotated[
        Duration,
        setting("How long it goes unrenewed before another process may take it", "DURATION", read=values.some_time),
    ] = Duration(30)

    @property
    def seconds(self) -> int:
        """The duration as it stands in the Lease."""
        return max(1, round(self.duration))


class Nodes(Table, frozen=True):
    """Which nodes, and what becomes of those that cannot be rebooted."""

    selector: Annotated[
        str,
        setting(
            "Nodes with these labels, as kubectl takes them",
            "SELECTOR",
            read=values.label_selector,
            flag="selector",
            short="-l",
        ),
    ] = ""
    node: Annotated[tuple[str, ...], setting("Only this node", "NAME", read=values.node_name, flag="node")] = ()
    exclude: Annotated[
        tuple[str, ...], setting("Leave this node, or pattern, out", "NAME", read=values.node_name, flag="exclude")
    ] = ()
    allow: Annotated[
        tuple[str, ...],
        setting(
            f"{', '.join(Allow)}, or a rival's name",
            "WORD",
            read=values.allowed,
            flag="allow",
        ),
    ] = ()
    skip: Annotated[
        tuple[Skip, ...] | None,
        setting("blocked: leave out nodes with blockers", "WORD", flag="skip"),
    ] = None
    require_all: Annotated[bool, setting("Start nothing if a node cannot be rebooted (exit 4)", flag="require-all")] = (
        False
    )


class Detect(Table, frozen=True):
    """What says that a node needs a reboot."""

    sources: Annotated[
        tuple[Source, ...],
        setting(
            "Any of these will do: update-engine, annotation (reboot-needed on the Node), reboot-required (the file in "
            "/run), rpm-ostree (a staged deployment), command (detect.command)",
            "SOURCE",
        ),
    ] = DEFAULT_SOURCES
    command: Annotated[
        str,
        setting(
            "Command that tells, by exit status 0, that its host needs a reboot; run as the SSH user, 15 s at most",
            "COMMAND",
            read=values.one_line,
        ),
    ] = ""


class Ssh(Table, frozen=True):
    """How hosts are reached."""

    executor: Annotated[Executor, setting("ssh, or ansible: as your inventory says", "WORD", flag="executor")] = (
        Executor.SSH
    )
    inventory: Annotated[
        Path | None,
        setting("As Ansible reads it; default: the Nodes' addresses", "FILE", flag="inventory", short="-i"),
    ] = None
    user: Annotated[
        str, setting(f"Default: the SSH configuration's, else {DEFAULT_SSH_USER}", "USER", flag="ssh-user")
    ] = ""
    port: Annotated[
        int | None,
        setting(
            f"Default: the SSH configuration's, else {DEFAULT_SSH_PORT}", "PORT", flag="ssh-port", least=1, most=65535
        ),
    ] = None
    key: Annotated[Path | None, setting("Private key; default: the agent's, ~/.ssh", "FILE", flag="ssh-key")] = None
    known_hosts: Annotated[
        Path | None, setting("Host keys to trust; default: as ssh has them", "FILE", flag="known-hosts")
    ] = None
    config: Annotated[
        Path | None, setting("OpenSSH configuration, or none; default: ssh's own", "FILE", flag="ssh-config")
    ] = None
    host_key_checking: Annotated[HostKeys, setting("strict, accept-new or off", "MODE", flag="host-key-checking")] = (
        HostKeys.STRICT
    )
    probe_timeout: Annotated[
        Duration, setting("How long one host may take to answer", "DURATION", read=values.some_time)
    ] = Duration(60)
    probe_concurrency: Annotated[int, setting("How many hosts are asked at once", "N", least=1)] = 50


class Waves(Table, frozen=True):
    """How many nodes at once, and which of them first."""

    max_unavailable: Annotated[
        Count | None,
        setting(
            "Most nodes away at once, 3 or 25%; default: 1", "COUNT", read=values.at_least_one, flag="max-unavailable"
        ),
    ] = None
    max_failures: Annotated[
        Count,
        setting("Start no further node after so many failed", "COUNT", read=values.at_least_one, flag="max-failures"),
    ] = _POLICY.max_failures
    strategy: Annotated[Strategy, setting("waves, or rolling: next as one is back", "WORD", flag="strategy")] = (
        _POLICY.strategy
    )
    canary: Annotated[int, setting("Reboot this many first, one at a time", "N", flag="canary", least=0)] = (
        _POLICY.canary
    )
    spread_by: Annotated[
        str, setting("One value of this label in a wave: one zone", "LABEL", read=values.label_name, flag="spread-by")
    ] = _POLICY.spread_by
    control_plane: Annotated[
        ControlPlaneOrder, setting("last, first, exclude; one at a time", "WORD", flag="control-plane")
    ] = _POLICY.control_plane
    control_plane_selector: Annotated[
        str,
        setting(
            "Nodes of the control plane besides those whose role label or taint says so: node.kubernetes.io/controller "
            "for Typhoon",
            "SELECTOR",
            read=values.label_selector,
        ),
    ] = _POLICY.control_plane_selector
    sharing: Annotated[
        Sharing,
        setting(
            "How nodes whose pods share a disruption budget share a wave: by the rate at which it lets pods go, or "
            "only where it lets all of them go at once"
        ),
    ] = _POLICY.sharing
    ramp: Annotated[
        tuple[Count, ...],
        setting(
            "Sizes of the first waves, the last for all that follow: 1,10%,25%; never above waves.max-unavailable",
            "COUNTS",
            read=values.at_least_one,
        ),
    ] = ()
    health_checks: Annotated[int, setting("How many good checks in a row settle a wave", "N", least=1)] = (
        _GATES.health_checks
    )
    settle_timeout: Annotated[
        Duration,
        setting("Time for moved pods to be available again", "DURATION", read=values.duration, flag="settle-timeout"),
    ] = _POLICY.settle_timeout
    soak: Annotated[Duration, setting("Pause between two waves", "DURATION", read=values.duration)] = _GATES.soak
    stop: Annotated[
        StopMode,
        setting("At the first Ctrl-C: finish the nodes in flight, or revert those that are not rebooting yet"),
    ] = StopMode.FINISH


class Drain(Table, frozen=True):
    """How a node is emptied."""

    timeout: Annotated[
        Duration,
        setting("Time for a node's pods to leave", "DURATION", read=values.some_time, flag="drain-timeout"),
    ] = _DRAIN.timeout
    grace_period: Annotated[
        int | None,
        setting("For pods to end; default: each pod's own", "SECONDS", flag="grace-period", least=0, most=LONGEST),
    ] = _DRAIN.grace_period
    force: Annotated[bool, setting("Evict pods that nothing will start again", flag="force")] = _DRAIN.force
    delete_emptydir_data: Annotated[
        bool, setting("The default; --no-delete-… refuses to", flag="delete-emptydir-data")
    ] = _DRAIN.delete_emptydir_data
    disable_eviction: Annotated[
        bool, setting("Delete pods: disruption budgets are ignored", flag="disable-eviction")
    ] = _DRAIN.disable_eviction
    pod_selector: Annotated[
        str,
        setting(
            "Evict only these pods; the reboot ends others", "SELECTOR", read=values.label_selector, flag="pod-selector"
        ),
    ] = _DRAIN.pod_selector
    skip_wait_for_delete_timeout: Annotated[
        int,
        setting(
            "Do not wait for pods that should have been gone for longer than this; 0 waits for all",
            "SECONDS",
            least=0,
            most=LONGEST,
        ),
    ] = _DRAIN.skip_wait_for_delete_timeout
    delay: Annotated[
        Duration, setting("Pause between the cordon and the first eviction", "DURATION", read=values.duration)
    ] = _POLICY.courtesy.drain_delay
    prefer_no_schedule_taint: Annotated[
        bool,
        setting(
            "Taint nodes that wait for their turn PreferNoSchedule, so that evicted pods go to nodes that are done"
        ),
    ] = True
    exclude_from_load_balancers: Annotated[
        Duration,
        setting(
            "Take a node out of external load balancers, and wait this long before its drain; 0s: leave it in",
            "DURATION",
            read=values.duration,
        ),
    ] = _POLICY.exclude_from_load_balancers


class Reboot(Table, frozen=True):
    """How a host is rebooted, and how long that may take."""

    timeout: Annotated[
        Duration, setting("Time for a host to come back", "DURATION", read=values.some_time, flag="reboot-timeout")
    ] = _POLICY.reboot_timeout
    ready_timeout: Annotated[
        Duration, setting("Time for it to be Ready then", "DURATION", read=values.some_time, flag="ready-timeout")
    ] = _POLICY.ready_timeout
    delay: Annotated[
        Duration, setting("Pause between the end of the drain and the reboot", "DURATION", read=values.duration)
    ] = _POLICY.courtesy.reboot_delay
    command: Annotated[
        str,
        setting(
            "Command that reboots a host, run as the SSH user. Default: systemctl reboot, through sudo -n",
            "COMMAND",
            read=values.one_line,
        ),
    ] = ""
    wait_for_users: Annotated[
        Duration,
        setting(
            "Wait at most this long until nobody is logged in on the host; then go on", "DURATION", read=values.duration
        ),
    ] = _POLICY.courtesy.wait_for_users
    wall: Annotated[bool, setting("Tell logged-in users of the reboot (wall), before they are waited for")] = False
    wall_message: Annotated[
        str, setting("What wall tells them, in place of the usual sentence", "TEXT", read=values.one_line)
    ] = ""
    pre_playbook: Annotated[
        Path | None,
        setting("Ansible playbook to run on each drained node; if it fails, the node is given back", "FILE"),
    ] = None
    post_playbook: Annotated[
        Path | None, setting("The same on each node that is Ready again; if it fails, the node stays cordoned", "FILE")
    ] = None


class Gates(Table, frozen=True):
    """What is asked before a node is started, rebooted or given back."""

    window: Annotated[
        tuple[str, ...],
        setting(
            "Start nodes then: [DAYS] HH:MM LENGTH [ZONE]",
            "WINDOW",
            read=values.window,
            flag="window",
            between=";",
        ),
    ] = ()
    freeze: Annotated[
        tuple[str, ...],
        setting(
            "Start no node then, window or not: DAYS [HH:MM LENGTH] [ZONE], such as 2026-12-20..2027-01-04, each "
            "year 12-20..01-04, or last fri",
            "FREEZE",
            read=values.freeze,
            between=";",
        ),
    ] = ()
    calendar: Annotated[
        Path | None, setting("Start no node during the events of this iCalendar file, read at each pass", "FILE")
    ] = None
    wait_window: Annotated[bool, setting("Wait for the next window instead of ending with what is left")] = False
    interactive: Annotated[bool, setting("Ask before each wave", flag="interactive")] = False
    command: Annotated[
        str,
        setting(
            "Command to run before the rollout, each wave and each node; it holds them until it succeeds",
            "COMMAND",
            read=values.command_words,
        ),
    ] = ""
    timeout: Annotated[
        Duration,
        setting("How long pods, alerts or the gate command may hold a node", "DURATION", read=values.some_time),
    ] = _GATES.timeout
    blocking_pod_selector: Annotated[
        tuple[str, ...],
        setting(
            "Do not start a node while a pod with these labels runs on it",
            "SELECTOR",
            read=values.label_selector,
            between=";",
        ),
    ] = ()
    before_reboot_annotations: Annotated[
        tuple[str, ...],
        setting("Drain a node only once its checks have set these annotations to true", "NAME", read=values.label_name),
    ] = ()
    after_reboot_annotations: Annotated[
        tuple[str, ...],
        setting(
            "Give a rebooted node back only once its checks have set these to true", "NAME", read=values.label_name
        ),
    ] = ()
    hook_prefix: Annotated[
        str,
        setting(
            "Prefix of the labels before-reboot and after-reboot that ask for checks",
            "PREFIX",
            read=values.label_prefix,
        ),
    ] = _HOOKS.prefix
    hook_timeout: Annotated[Duration, setting("How long checks may take", "DURATION", read=values.some_time)] = (
        _HOOKS.timeout
    )


class Alerts(Table, frozen=True):
    """Prometheus' firing alerts that hold nodes."""

    prometheus_url: Annotated[
        str,
        setting(
            "Start no node while this Prometheus has firing alerts, or cannot be reached",
            "URL",
            read=values.prometheus_url,
        ),
    ] = ""
    filter_regexp: Annotated[str, setting("Alerts whose names match do not count", "REGEXP", read=values.pattern)] = ""
    filter_match_only: Annotated[bool, setting("Only alerts that match alerts.filter-regexp count")] = False


class Labels(Table, frozen=True):
    """Labels on nodes for other programs."""

    pre_reboot: Annotated[
        tuple[str, ...],
        setting("Set these at the cordon, restore them afterwards", "NAME=VALUE", read=values.node_labels),
    ] = ()
    post_reboot: Annotated[
        tuple[str, ...],
        setting("Set these once a node is rebooted, proven and given back", "NAME=VALUE", read=values.node_labels),
    ] = ()
    fluo: Annotated[bool, setting("Keep the labels id, group and version up to date, as FLUO's agent does")] = False


class Output(Table, frozen=True):
    """How to print, and what is written down."""

    format: Annotated[
        OutputFormat,
        setting("text, json, wide: every column", "WORD", flag="output", short="-o"),
    ] = OutputFormat.TEXT
    verbose: Annotated[
        int,
        setting("Print more: stages, decisions; -vv: requests", read=values.verbosity, flag="verbose", short="-v"),
    ] = 0
    log_file: Annotated[
        Path | None, setting("Append all that -vv prints, with what was said and done, to this file", "FILE")
    ] = None
    journal: Annotated[
        Path | None, setting("Journal file. Default: one per run in $XDG_STATE_HOME/rollout/runs", "FILE")
    ] = None

    @property
    def as_json(self) -> bool:
        """Whether programs read it."""
        return self.format is OutputFormat.JSON

    @property
    def is_wide(self) -> bool:
        """Whether every column is asked for."""
        return self.format is OutputFormat.WIDE

    @property
    def width(self) -> int | None:
        """Columns that text may take; None: no limit."""
        return None if self.is_wide else terminal.width()

    @property
    def is_document(self) -> bool:
        """Whether the whole is printed as JSON, or as the same in YAML."""
        return self.format in (OutputFormat.JSON, OutputFormat.YAML)

    @property
    def as_names(self) -> bool:
        """Whether nothing but the nodes' names is wanted."""
        return self.format is OutputFormat.NAME

    def document(self, written: bytes) -> bytes:
        """A JSON document in the format that is wanted; as YAML it stays ASCII, for terminals obey more than that."""
        if self.format is not OutputFormat.YAML:
            return written
        import yaml

        document = msgspec.json.decode(written)
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=_YAML_WIDTH).encode()


_YAML_WIDTH = 100


class Metrics(Table, frozen=True):
    """Where metrics go."""

    textfile: Annotated[
        Path | None,
        setting(
            "Keep metrics in this .prom file, for node_exporter's textfile collector", "FILE", read=values.textfile
        ),
    ] = None
    pushgateway: Annotated[
        str,
        setting(
            "Push metrics to this Pushgateway; a URL with a password: in the variable",
            "URL",
            read=values.pushgateway_url,
            variable="ROLLOUT_METRICS_PUSHGATEWAY",
        ),
    ] = ""
    listen: Annotated[
        str,
        setting(
            "operate: serve /metrics, /healthz and /readyz here: :9732 is all addresses, 127.0.0.1:9732 this machine",
            "[ADDRESS]:PORT",
            read=values.listen_address,
        ),
    ] = ""

    @property
    def is_used(self) -> bool:
        """Whether metrics are left anywhere."""
        return bool(self.textfile or self.pushgateway)


class Notify(Table, frozen=True):
    """Who hears of a rollout that nobody watches."""

    url: Annotated[
        tuple[str, ...],
        setting(
            "Send notifications there: https://… gets JSON, an Apprise URL (slack://…, mailto://…) a text. A secret: "
            "best in the variable, or in notify.file",
            "URL",
            check=values.notify_urls,
            variable="ROLLOUT_NOTIFY",
            between=" ",
        ),
    ] = ()
    file: Annotated[values.UrlFile | None, setting("File with such URLs, one a line", "FILE", read=values.url_file)] = (
        None
    )
    on: Annotated[tuple[NotifyEvent, ...], setting("Notify only on these events. Default: all", "EVENT")] = tuple(
        NotifyEvent
    )
    held_after: Annotated[
        Duration,
        setting("How long an eviction may be held before it is told of", "DURATION", read=values.some_time),
    ] = Duration(600)

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL."""
        return (*self.url, *(self.file.urls if self.file else ()))


class Operate(Table, frozen=True):
    """The pace of unattended passes."""

    every: Annotated[
        Duration,
        setting("Time from the start of one pass to the next", "DURATION", read=values.some_time, flag="every"),
    ] = Duration(600)
    active_deadline: Annotated[
        Duration | None,
        setting(
            "How long a pass may take: it starts no node that is not estimated to be back by then",
            "DURATION",
            read=values.some_time,
            flag="active-deadline",
        ),
    ] = None


class FleetLock(Table, frozen=True):
    """The FleetLock server: where it listens, and how many hosts of which group may reboot at a time."""

    listen: Annotated[
        str,
        setting("Where hosts ask: :8080 is all addresses", "[ADDRESS]:PORT", read=values.listen_address, flag="listen"),
    ] = "0.0.0.0:8080"
    tls_cert: Annotated[
        Path | None, setting("Serve HTTPS with this certificate (PEM, with its chain)", "FILE", flag="tls-cert")
    ] = None
    tls_key: Annotated[Path | None, setting("The certificate's private key", "FILE", flag="tls-key")] = None
    slots: Annotated[
        Count,
        setting("Hosts of a group on their way at once: 1, or 25%", "COUNT", read=values.at_least_one, flag="slots"),
    ] = Count(1)
    group: Annotated[
        tuple[str, ...],
        setting("Slots of a group; others are refused then", "NAME=COUNT", read=values.group_slots, flag="group"),
    ] = ()
    group_selector: Annotated[
        tuple[str, ...],
        setting(
            "Only nodes with these labels are of this group",
            "NAME=SELECTOR",
            read=values.group_selector,
            flag="group-selector",
            between=";",
        ),
    ] = ()
    slot_timeout: Annotated[
        Duration,
        setting("Time for a granted host to come back", "DURATION", read=values.some_time, flag="slot-timeout"),
    ] = Duration(3600)


class PoolTable(Table, frozen=True):
    """Nodes with rules of their own; they belong to the first pool that matches. None: the rollout's rule."""

    name: Annotated[str, setting("What it is called", "NAME", read=values.pool_name)] = ""
    selector: Annotated[str, setting("Its nodes", "SELECTOR", read=values.label_selector)] = ""
    after: Annotated[tuple[str, ...], setting("Pools that come before this one", "NAME")] = ()
    max_unavailable: Annotated[
        Count | None, setting("Most of its nodes away at once", "COUNT", read=values.at_least_one)
    ] = None
    canary: Annotated[int | None, setting("Reboot this many first, one at a time", "N", least=0)] = None
    ramp: Annotated[
        tuple[Count, ...] | None, setting("Sizes of its first waves", "COUNTS", read=values.at_least_one)
    ] = None
    strategy: Annotated[Strategy | None, setting("Waves, or rolling")] = None
    spread_by: Annotated[str | None, setting("One value of this label in a wave", "LABEL", read=values.label_name)] = (
        None
    )
    reboot_idle: Annotated[bool | None, setting("Also reboot its nodes with no update staged")] = None
    drain_timeout: Annotated[
        Duration | None, setting("Time for a node's pods to leave", "DURATION", read=values.some_time)
    ] = None
    reboot_timeout: Annotated[
        Duration | None, setting("Time for a host to come back", "DURATION", read=values.some_time)
    ] = None
    ready_timeout: Annotated[
        Duration | None, setting("Time for it to be Ready then", "DURATION", read=values.some_time)
    ] = None


class Settings(Table, frozen=True):
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
    fleetlock: FleetLock = FleetLock()
    pool: tuple[PoolTable, ...] = ()
