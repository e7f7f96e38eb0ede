"""`rollout metrics`: what makes alerts and pictures of the metrics that other commands leave."""

from enum import StrEnum
from textwrap import indent
from typing import Annotated

import typer

metrics_app = typer.Typer(
    help="Print alert rules or a dashboard for Prometheus.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)

_RESOURCE = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: node-rollout}
spec:
"""


class RulesFormat(StrEnum):
    """Who is to read the rules."""

    PROMETHEUS = "prometheus"
    OPERATOR = "operator"


FormatOption = Annotated[
    RulesFormat,
    typer.Option("--format", help="prometheus: for its rule_files. operator: a PrometheusRule, for kubectl apply."),
]


@metrics_app.command()
def rules(rules_format: FormatOption = RulesFormat.PROMETHEUS) -> None:
    """Print alert rules for Prometheus.

    \b
    Examples:
      rollout metrics rules > /etc/prometheus/rules/node-rollout.yaml
      rollout metrics rules --format operator | kubectl -n monitoring apply -f -
    """
    from rollout.cli.terminal import show

    text = _file("rules.yaml")
    show(_RESOURCE + indent(text, "  ") if rules_format is RulesFormat.OPERATOR else text)


@metrics_app.command()
def dashboard() -> None:
    """Print a Grafana dashboard, to be imported."""
    from rollout.cli.terminal import show

    show(_file("dashboard.json"))


def _file(name: str) -> str:
    from importlib.resources import files

    return (files("rollout") / "manifests" / "monitoring" / name).read_text(encoding="utf-8").rstrip("\n")
