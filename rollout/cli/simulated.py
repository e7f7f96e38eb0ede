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
    """Return the figures, and the word on them."""
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
        ("pods killed without eviction", _number(scores.killed)),
        ("disruption budgets broken", _number([budget.name for budget in scores.budgets_broken])),
        ("cordons left", _number(scores.cordons_left)),
    ]
    table = tabulate(rows, tablefmt="plain", disable_numparse=True)
    return f"{table}\n\n{_verdict(scores)}"


def _verdict(scores: "Scoreboard") -> str:
    """Whether it went well, and what did not."""
    troubles = (
        ("host down", scores.hosts_down),
        ("still cordoned", scores.cordons_left),
        ("still tainted", scores.taints_left),
        ("still out of load balancers", scores.exclusions_left),
        ("killed without eviction", scores.killed),
        ("budget broken", [budget.name for budget in scores.budgets_broken]),
        ("rebooted, and on its old version", scores.rolled_back),
    )
    sentence = "; ".join(f"{word}: {shortened(names)}" for word, names in troubles if names)
    if not scores.clean or scores.hosts_down:
        return f"Not clean. {sentence}."
    if sentence:
        return f"Nothing is left behind. {sentence[:1].upper()}{sentence[1:]}."
    return "Clean: nothing was harmed, and nothing is left behind."


def _number(names: "tuple[str, ...] | list[str]") -> str:
    return f"{len(names)} ({shortened(names)})" if names else "0"


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
