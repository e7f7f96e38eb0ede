"""Tables of what other programs are told and asked, and of what runs unattended: operate, the FleetLock server."""

from pathlib import Path

from rollout.cli.settings import values
from rollout.cli.settings.keys import Table, setting
from rollout.model.notification import NotifyEvent
from rollout.model.quantity import Count, Duration


class Alerts(Table):
    """Prometheus' firing alerts that hold nodes."""

    prometheus_url: str = setting(
        "",
        "Start no node while this Prometheus has firing alerts, or cannot be reached",
        "URL",
        read=values.prometheus_url,
    )
    alertmanager_url: str = setting(
        "", "Alerts that this Alertmanager has silenced do not count", "URL", read=values.prometheus_url
    )
    silence: str = setting(
        "",
        "Have that Alertmanager silence, while a node is under way, alerts in which this label is its name or address: "
        "node, instance",
        "LABEL",
        read=values.alert_label,
    )
    filter_regexp: str = setting("", "Alerts whose names match do not count", "REGEXP", read=values.pattern)
    filter_match_only: bool = setting(False, "Only alerts that match alerts.filter-regexp count")
    matchers: tuple[str, ...] = setting(
        (),
        'Only alerts with these labels count, as PromQL writes them: severity=~"critical|page"',
        "MATCHER",
        read=values.matcher,
        between=";",
    )


class Labels(Table):
    """Labels on nodes for other programs."""

    fluo: bool = setting(False, "Keep the labels id, group and version up to date, as FLUO's agent does")


class Metrics(Table):
    """Where metrics go."""

    textfile: Path | None = setting(
        None, "Keep metrics in this .prom file, for node_exporter's textfile collector", read=values.textfile
    )
    pushgateway: str = setting(
        "",
        "Push metrics to this Pushgateway; a URL with a password: in the variable",
        "URL",
        read=values.pushgateway_url,
        variable="ROLLOUT_METRICS_PUSHGATEWAY",
    )
    listen: str = setting(
        "",
        "operate: serve /metrics, /healthz and /readyz here: :9732 is all addresses, 127.0.0.1:9732 this machine",
        "[ADDRESS]:PORT",
        read=values.listen_address,
    )

    @property
    def is_used(self) -> bool:
        """Whether metrics are left anywhere."""
        return bool(self.textfile or self.pushgateway)


class Notify(Table):
    """Who hears of a rollout that nobody watches."""

    url: tuple[str, ...] = setting(
        (),
        "Send notifications there: https://… gets JSON, an Apprise URL (slack://…, mailto://…) a text. A secret: "
        "best in the variable",
        "URL",
        check=values.notify_urls,
        variable="ROLLOUT_NOTIFY",
        between=" ",
    )
    on: tuple[NotifyEvent, ...] = setting(tuple(NotifyEvent), "Notify only on these events. Default: all", "EVENT")
    held_after: Duration = setting(Duration(600), "How long an eviction may be held before it is told of")


class Operate(Table):
    """The pace of unattended passes."""

    every: Duration = setting(Duration(600), "Time from the start of one pass to the next", flag="every")
    active_deadline: Duration | None = setting(
        None,
        "How long a pass may take: it starts no node that is not estimated to be back by then",
        flag="active-deadline",
    )
    finish_by: str = setting(
        "",
        "By when all is to be done: it tells as soon as its forecast is later",
        "TIME",
        read=values.date_with_time,
        flag="finish-by",
    )


class Evidence(Table):
    """What another cluster has to prove of a version before operate takes it."""

    source: str = setting(
        "",
        "Take only versions proven so: a file, folder or URL of rollout evidence, or configmap",
        "SOURCE",
        read=values.evidence_source,
        flag="require-evidence",
    )
    cluster: str = setting(
        "", "The cluster that proves: its cluster.name or UID, and its principal", "NAME", read=values.principal
    )
    allowed_signers: Path | None = setting(None, "OpenSSH's file of who may sign: PRINCIPAL KEY-TYPE KEY")
    nodes: int = setting(1, "How many nodes have to run it there", least=1)
    hours: int = setting(24, "For how many hours since the last of them was rebooted", least=0)
    max_age: Duration = setting(Duration(7 * 86400), "How old evidence may be", read=values.some_time)


class FleetLock(Table):
    """The FleetLock server: where it listens, and how many hosts of which group may reboot at a time."""

    listen: str = setting(
        "0.0.0.0:8080",
        "Where hosts ask: :8080 is all addresses",
        "[ADDRESS]:PORT",
        read=values.listen_address,
        flag="listen",
    )
    tls_cert: Path | None = setting(None, "Serve HTTPS with this certificate (PEM, with its chain)", flag="tls-cert")
    tls_key: Path | None = setting(None, "The certificate's private key", flag="tls-key")
    slots: Count = setting(Count(1), "Hosts of a group on their way at once: 1, or 25%", flag="slots")
    group: tuple[str, ...] = setting(
        (), "Slots of a group; others are refused then", "NAME=COUNT", read=values.group_slots, flag="group"
    )
    group_selector: tuple[str, ...] = setting(
        (),
        "Only nodes with these labels are of this group",
        "NAME=SELECTOR",
        read=values.group_selector,
        flag="group-selector",
        between=";",
    )
    slot_timeout: Duration = setting(Duration(3600), "Time for a granted host to come back", flag="slot-timeout")
