"""The lab's scoreboard as text: what its cluster saw, whatever the rollout says of itself."""

from collections import Counter

from tabulate import tabulate

from rollout.lab.scoreboard import Scoreboard
from rollout.model.text import shortened


def scoreboard_text(scores: Scoreboard) -> str:
    """The figures, and the word on them."""
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
    word = "Clean: nothing was harmed, and nothing is left behind." if scores.clean else "Not clean."
    return f"{table}\n\n{word}"


def _number(names: "tuple[str, ...] | list[str]") -> str:
    return f"{len(names)} ({shortened(names)})" if names else "0"
