"""Random rollouts, planned and played on the lab's world in simulated time: what can be finished, and is estimated.

A plan that a played rollout cannot finish has to warn of it, no budget may be broken, and estimates have to be within
25 % of what the second of two runs took.

Run: python tests/benchmarks/estimates.py [--from SEED] [--seconds 600] [--variety plain|pools|slow] [--seed SEED ...]
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.planning.random_rollouts import End, Trial, Variety, tried


def main() -> None:
    """Try seeds until the time is up, print what is wrong, and the counts at the end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--variety", choices=list(Variety), type=Variety, action="append")
    parser.add_argument("--seed", type=int, nargs="*")
    asked = parser.parse_args()
    ends: Counter[tuple[Variety, End]] = Counter()
    off: list[Trial] = []
    until = time.monotonic() + asked.seconds
    for trial in trials(asked.seed or count(asked.first), asked.variety or list(Variety)):
        ends[trial.variety, trial.end] += 1
        if trial.end in (End.STUCK, End.BROKEN) or not trial.is_near:
            off += [trial] if trial.end is End.MEASURED else []
            figures = f"{trial.estimate:g} s of {trial.took:g} s" if trial.took else ""
            so_far = sum(ends[variety, End.MEASURED] for variety in Variety)
            counts = f"(of {so_far} measured, {so_far - len(off)} within 25 %, {len(off)} off)"
            print(f"{trial.seed} {trial.variety}: {trial.end}, {trial.told} {figures} {counts}", flush=True)
        if time.monotonic() > until:
            break
    for (variety, end), number in sorted(ends.items()):
        print(f"{variety:<8}{end:<10}{number:>6}")
    print(f"{len(off)} estimates off by more than 25 %: {sorted(round(trial.ratio, 2) for trial in off)}")


def trials(seeds: Iterator[int], varieties: list[Variety]) -> Iterator[Trial]:
    """Each seed in each variety."""
    return (tried(seed, variety) for seed in seeds for variety in varieties)


if __name__ == "__main__":
    main()
