"""What an earlier process has left of a run, and what came of undoing one: values, for whoever tells of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rollout.execution.record.health import Health
from rollout.model.progress import NodeResult, NotDone


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What an earlier process has left of this run.

    `begun` maps nodes to the run whose marks they carry; `left` are nodes that failed and stay cordoned. `health` is
    what was well before the wave that was interrupted, None where that is not known. `failures` are as many as count
    towards the most that are allowed; `failed` are the nodes that failed and are not tried again. `stranded` are the
    ends of begun nodes that this process cannot go on with. `is_recorded`: its record stands, and is understood; else
    none is written or taken away. `retried` are nodes that failed and are tried again, given back by then or not.
    `left_over` are nodes that it was to take, and that the plan of this process leaves out.
    """

    begun: Mapping[str, str] = field(default_factory=dict)
    left_cordoned: frozenset[str] = frozenset()
    health: Health | None = None
    failures: int = 0
    failed: tuple[NotDone, ...] = ()
    stranded: tuple[NodeResult, ...] = ()
    is_recorded: bool = True
    retried: frozenset[str] = frozenset()
    left_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """What came of it: nodes that are as they were before, and those that could not be made so, each with why.

    `run` is empty where neither a record nor a mark names it. `untainted` are the nodes that had its soft taint,
    `left_tainted` those on which it stays, each with why. `stopped`: it was asked to end before it was done.
    `operating`: the rollout was an operating process', whose next pass would begin another.
    """

    run: str
    reverted: tuple[str, ...]
    left_cordoned: Mapping[str, str]
    untainted: tuple[str, ...] = ()
    left_tainted: Mapping[str, str] = field(default_factory=dict)
    stopped: bool = False
    operating: bool = False
