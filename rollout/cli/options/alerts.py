"""Which Prometheus is asked for alerts: part of the plan, and of this process's own word where its token may go."""

from dataclasses import dataclass
from typing import Annotated

import typer

from rollout.cli.options import values
from rollout.errors import UsageError
from rollout.model.policy import Policy

GATES = "Gates"

PrometheusUrl = Annotated[
    str,
    typer.Option(
        "--prometheus-url",
        envvar="ROLLOUT_PROMETHEUS_URL",
        show_envvar=False,
        metavar="URL",
        parser=values.prometheus_url,
        show_default=False,
        help="Begin no node while this Prometheus has alerts, or cannot be asked.",
        rich_help_panel=GATES,
    ),
]


@dataclass(frozen=True, slots=True)
class AlertAddressOptions:
    """For commands whose rules stand elsewhere: where this process's token may go."""

    prometheus_url: PrometheusUrl = ""


def is_flag_given(call: typer.Context, name: str) -> bool:
    """Whether a flag stands on the command line itself."""
    source = call.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_another_address(call: typer.Context, own_url: str, policy: Policy) -> None:
    """`UsageError` for a --prometheus-url on the command line that is not the one which is asked."""
    from rollout.adapters.prometheus import is_same_place

    url = policy.gates.alerts.url
    if is_flag_given(call, "prometheus_url") and not is_same_place(own_url, url):
        raise UsageError(
            f"--prometheus-url {own_url}, but {url or 'no Prometheus'} was asked for when this was planned",
            hint="Drop the flag, or make a new plan with it.",
        )
