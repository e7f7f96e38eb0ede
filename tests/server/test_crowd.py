"""Fifty hosts for three slots, two replicas that are killed at random: never more than three are granted."""

import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.server.serving import Reply, Server, left_on, reboot, serving

pytestmark = pytest.mark.exhaustive

HOSTS, SLOTS, THROUGH = 50, 3, 9
SECONDS = 240


@dataclass
class Crowd:
    """Hosts that ask any replica, again and again; who is between a grant and its release is kept count of."""

    lab: Lab
    servers: list[Server]
    holding: set[str] = field(default_factory=set)
    through: set[str] = field(default_factory=set)
    most: int = 0
    wrongs: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    over: threading.Event = field(default_factory=threading.Event)

    def live(self, node: str, seed: int) -> None:
        """One host: ask until granted, reboot, tell until released."""
        rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        try:
            while self._ask(Server.pre_reboot, node, rng) is not True:
                if self.over.wait(rng.uniform(0.5, 1.5)):
                    return
            self._hold(node)
            reboot(self.lab, node)
            while (released := self._report(node, rng)) is not True:
                if released is False:
                    self._hold(node)
                if self.over.wait(rng.uniform(0.5, 1.5)):
                    return
            self.through.add(node)
        except AssertionError as error:
            self.wrongs.append(f"{node}: {error}")

    def _hold(self, node: str) -> None:
        with self.lock:
            self.holding.add(node)
            self.most = max(self.most, len(self.holding))

    def _report(self, node: str, rng: random.Random) -> bool | None:
        """A slot may be free as soon as this is sent: from then on nobody can tell here."""
        with self.lock:
            self.holding.discard(node)
        return self._ask(Server.steady_state, node, rng)

    def _ask(self, question: Callable[[Server, str], Reply], node: str, rng: random.Random) -> bool | None:
        """Whether it was granted; None where the replica did not live to say so."""
        try:
            granted = question(rng.choice(self.servers), node).granted
        except (OSError, HTTPException):
            return None
        if granted and question is Server.pre_reboot and (pods := left_on(self.lab, node)):
            self.wrongs.append(f"{node} was granted with {pods}")
        return granted


@pytest.mark.timeout(SECONDS + 60)
def test_never_more_than_the_slots_whoever_is_killed(start_lab: StartLab, tmp_path: Path) -> None:
    lab = start_lab("default", nodes=HOSTS + 3, speed=30)
    workers = sorted(name for name in lab.machines if name.startswith("worker"))
    quick = ("--slots", str(SLOTS), "--max-unavailable", str(SLOTS), "--set", "lock.duration=3s")
    rng = random.Random(4)  # noqa: S311 - repeatable on purpose
    with serving(lab, tmp_path, *quick) as first, serving(lab, tmp_path, *quick) as second:
        crowd = Crowd(lab, [first, second])
        hosts = [threading.Thread(target=crowd.live, args=(name, n)) for n, name in enumerate(workers)]
        for host in hosts:
            host.start()
        try:
            end = time.monotonic() + SECONDS
            while len(crowd.through) < THROUGH and not crowd.wrongs and time.monotonic() < end:
                time.sleep(rng.uniform(3, 6))
                victim = rng.choice(crowd.servers)
                victim.end(rng.choice((signal.SIGKILL, signal.SIGTERM)))
                victim.begin()
        finally:
            crowd.over.set()
            for host in hosts:
                host.join()
    score = lab.scoreboard()
    assert crowd.wrongs == []
    assert len(crowd.through) >= THROUGH
    assert 1 < crowd.most <= SLOTS, "several at once, and never too many"
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert score.most_unavailable <= SLOTS
    assert all(count == 1 for count in score.reboots.values() if count)
