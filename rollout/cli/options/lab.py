"""Which simulated cluster, and how fast its time passes."""

from typing import Annotated

import typer

NodesOption = Annotated[
    int | None, typer.Option("--nodes", metavar="N", min=1, help="How many nodes. Default: the scenario's.")
]
ScenarioOption = Annotated[
    str, typer.Option("--scenario", metavar="NAME|FILE", help="Scenario; see `rollout lab scenarios`.")
]
SpeedOption = Annotated[float, typer.Option("--speed", metavar="X", min=0.1, help="Simulated seconds per real second.")]
