"""Options that are no settings, and that several commands share."""

from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
UnlockOption = Annotated[
    str,
    typer.Option(
        "--force-unlock",
        metavar="RUN",
        show_default=False,
        help="Do not wait for the Lease of this run: you are sure that no process is working on it",
    ),
]
AllClustersOption = Annotated[
    bool, typer.Option("--all-clusters", help="Runs on any cluster; default: those on the context's, by its address")
]

# which simulated cluster, and how fast its time passes
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
