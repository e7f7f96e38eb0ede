"""Which simulated cluster, and how fast its time passes."""

from typing import Annotated

import typer

NodesOption = Annotated[
    int | None, typer.Option("--nodes", metavar="N", min=1, help="How many nodes. Default: the scenario's.")
]
ScenarioOption = Annotated[
    str, typer.Option("--scenario", metavar="NAME|FILE", help="Scenario; see `rollout lab scenarios`.")
]
FleetLockOption = Annotated[
    str,
    typer.Option(
        "--fleetlock",
        metavar="URL",
        help="Have hosts ask this FleetLock server before they reboot, as Zincati does. Where the scenario has no such "
        "hosts, all are.",
    ),
]
SpeedOption = Annotated[float, typer.Option("--speed", metavar="X", min=0.1, help="Simulated seconds per real second.")]
