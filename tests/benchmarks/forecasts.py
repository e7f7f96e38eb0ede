"""How well plans forecast random clusters, whose workloads leave their nodes in a way of their own.

Each seed and kind of workload is a cluster (`tests/planning/test_rehearsals.py`). It is planned,
copied and rehearsed in simulated time. Where the forecast differs from the rehearsal by more than a
tenth, the rehearsal is repeated: other nodes of equal rank take the pods, and restarts end other
pods of equal rank. Of such a cluster it prints the range of these rehearsals.

Run: python tests/benchmarks/forecasts.py [--seeds 0-99] [--repeats 10]
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.planning.test_rehearsals import ADDED, Rehearsal, rehearsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-99")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    counts = Counter[str]()
    for seed in range(int(first), int(last) + 1):
        for kind in ADDED:
            rehearsal = rehearsed(seed, kind)
            if rehearsal is not None:
                counts[judge(rehearsal, f"{seed} {kind}", options.repeats)] += 1
    for verdict, count in counts.most_common():
        print(f"{count:>6} {verdict}")


def judge(rehearsal: Rehearsal, name: str, repeats: int) -> str:
    """Return in which way the forecast is right or wrong; print what is not within a tenth."""
    stuck = rehearsal.played.stuck
    if not stuck and 0.9 <= rehearsal.ratio <= 1.1:
        return "within a tenth"
    runs = rehearsal.repeated(repeats)
    took = sorted(run.seconds for run in runs if not run.stuck)
    forecast = rehearsal.plan.estimate.seconds
    span = f"{took[0]:.0f}-{took[-1]:.0f} s" if took else "never"
    print(
        f"{name}: forecast {forecast} s, took {rehearsal.played.seconds:.0f} s,"
        f" stuck {sorted(stuck)} (warned {sorted(rehearsal.warned)});"
        f" {len(took)} of {len(runs)} repeats ended: {span}",
        flush=True,
    )
    if stuck:
        return "stuck, as warned" if stuck <= rehearsal.warned else "stuck, without a warning"
    if took and 0.9 * took[0] <= forecast <= 1.1 * took[-1]:
        return "within a tenth of what chance decides"
    return "wrong"


if __name__ == "__main__":
    main()
