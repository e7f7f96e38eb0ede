"""What `demo` and `lab` share: which simulated cluster, and what it saw, whatever the rollout says of itself."""

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rollout.cli import failures
from rollout.cli.flags import option
from rollout.model.text import shortened

if TYPE_CHECKING:
    from rollout.lab.scoreboard import Scoreboard

NODES: int | None = option(None, "How many nodes. Default: the scenario's.", "N", min=1)
SCENARIO = option("default", "Scenario; see `rollout lab scenarios`.", "NAME|FILE")
SPEED = "Simulated seconds per real second."


def scoreboard_text(scores: "Scoreboard") -> str:
    """Return the figures, and the word on them.

    A host on its old version was not harmed: it works as before.
    """
    from tabulate import tabulate

    reboots = Counter(scores.reboots.values())
    updated = sum(versions.now != versions.before for versions in scores.versions.values())
    rows = [
        ("hosts rebooted once", f"{reboots[1]} of {len(scores.reboots)}"),
        ("hosts rebooted more than once", str(sum(number for times, number in reboots.items() if times > 1))),
        ("hosts on a new version", f"{updated} of {len(scores.versions)}"),
        ("most nodes unavailable at once", str(scores.most_unavailable)),
        ("pods evicted", str(scores.evictions)),
        ("pods moved more than once", str(scores.moved_twice)),
    ]
    troubles = {
        "pods killed without eviction": scores.killed,
        "disruption budgets broken": [budget.name for budget in scores.budgets_broken],
        "cordons left": scores.cordons_left,
        "taints left": scores.taints_left,
        "nodes left out of load balancers": scores.exclusions_left,
        "hosts down": scores.hosts_down,
        "hosts back on their old version": scores.rolled_back,
    }
    rows += [(what, f"{len(names)} ({shortened(names)})" if names else "0") for what, names in troubles.items()]
    table = tabulate(rows, tablefmt="plain", disable_numparse=True)
    clean = "Clean: nothing was harmed, and nothing is left behind."
    return f"{table}\n\n{clean if scores.clean and not scores.hosts_down else 'Not clean.'}"


def own_path() -> Path | None:
    """Return the program's file where PATH does not lead to it, as in a virtual environment that was never activated.

    None where its name alone is enough, or nobody knows its file.
    """
    typed = Path(sys.argv[0])
    own = typed if typed.name == failures.PROGRAM else Path(sys.executable).with_name(failures.PROGRAM)
    by_name = shutil.which(failures.PROGRAM)
    is_found = by_name is not None and own.exists() and own.samefile(by_name)
    return own if own.exists() and not is_found else None


def require_lab(purpose: str) -> None:
    """Refuse to simulate without the lab's libraries, or without a folder for temporary files."""
    from rollout.adapters.local_files import scratch_for

    with scratch_for(purpose):
        # asyncssh finds out by a temporary file which libraries there are
        from rollout.lab import require_libraries

        require_libraries()
