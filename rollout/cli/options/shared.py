"""Options that are no settings, and that several commands share."""

from pathlib import Path
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
JournalOption = Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="Read this journal")]
