"""Options of metrics: where a run leaves them for Prometheus, and where a standing process is scraped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import METRICS, Flag


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """Where metrics go."""

    metrics_textfile: Annotated[
        Path | None,
        Flag(
            METRICS,
            "Keep metrics in this .prom file, for node_exporter's textfile collector.",
            "FILE",
            read=values.textfile,
        ),
    ] = None
    metrics_pushgateway: Annotated[
        str,
        Flag(
            METRICS,
            "Push metrics to this Pushgateway. A URL with a password: in the environment.",
            "URL",
            read=values.pushgateway_url,
        ),
    ] = ""
    metrics_cluster: Annotated[
        str,
        Flag(METRICS, "Their label `cluster`.", "NAME", read=values.one_line, superseded_by="cluster-name"),
    ] = ""

    @property
    def is_used(self) -> bool:
        """Whether metrics go anywhere."""
        return bool(self.metrics_textfile or self.metrics_pushgateway)


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where a standing process is scraped."""

    metrics_listen: Annotated[
        str,
        Flag(
            METRICS,
            "Serve /metrics, /healthz and /readyz here: :9732 is all addresses, 127.0.0.1:9732 this machine.",
            "[ADDRESS]:PORT",
            read=values.listen_address,
        ),
    ] = ""
