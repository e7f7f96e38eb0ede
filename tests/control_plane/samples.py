"""Looks at the disruption budgets all the time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.control_plane.rest import Rest


@dataclass
class BudgetSamples:
    """The samples so far."""

    count: int = 0
    violations: list[str] = field(default_factory=list)

    def add(self, budgets: list[Any]) -> None:
        """Add one look at all budgets."""
        self.count += 1
        for budget in budgets:
            healthy = budget["status"].get("currentHealthy", 0)
            desired = budget["status"].get("desiredHealthy", 0)
            if healthy < desired:
                self.violations.append(f"{budget['metadata']['name']}: {healthy} of {desired}")


@contextmanager
def sampled_budgets(rest: Rest) -> Iterator[BudgetSamples]:
    """Look every 0.1 s for as long as the context lasts."""
    samples = BudgetSamples()
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.1):
            samples.add(rest.items("/apis/policy/v1/poddisruptionbudgets"))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()
