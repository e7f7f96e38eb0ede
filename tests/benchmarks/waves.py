"""How close to the fewest possible waves plans come, on random clusters of 50 to 2,000 nodes with 10 to 100 pods each.

The lower bound is proven, so that 1.00 is optimal; a ratio above it may be the bound's fault as well as the plan's.

With `demanding` most workloads also keep their pods apart, spread them strictly or are drawn to a zone.

Run: python tests/benchmarks/waves.py [CLUSTERS [demanding]]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.planning.plan.build import build_plan
from tests.planning.random_clusters import random_cluster

CLUSTERS = 40
STEPS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
SIZES = (50, 50, 100, 100, 200, 200, 500, 1000, 2000)


def main() -> None:
    """Plan that many random clusters and print each, then the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clusters", type=int, nargs="?", default=CLUSTERS)
    parser.add_argument("kind", choices=("usual", "demanding"), nargs="?", default="usual")
    asked = parser.parse_args()
    clusters, demanding = asked.clusters, asked.kind == "demanding"
    random = Random(7)  # noqa: S311 - reproducible, not secret
    ratios: list[float] = []
    print(f"{'nodes':>6}{'pods':>8}{'limit':>7}{'waves':>7}{'bound':>7}{'ratio':>7}{'CPU s':>7}")
    for seed in range(clusters):
        size = SIZES[seed % len(SIZES)]
        made = random_cluster(seed, size, random.randint(10, 100), demanding=demanding)
        began = time.process_time()
        plan = build_plan(made)
        seconds = time.process_time() - began
        summary = plan.summary
        ratios.append(summary.waves / max(1, summary.waves_lower_bound))
        pods, limit = len(made.snapshot.pods), str(made.policy.max_unavailable)
        figures = f"{summary.waves:>7}{summary.waves_lower_bound:>7}{ratios[-1]:>7.2f}{seconds:>7.2f}"
        print(f"{size:>6}{pods:>8}{limit:>7}{figures}", flush=True)
    print(
        f"\n{len(ratios)} clusters: median {statistics.median(ratios):.3f}, mean {statistics.mean(ratios):.3f}, "
        f"worst {max(ratios):.2f}; optimal {sum(ratio == 1 for ratio in ratios)}"
    )
    for step in STEPS:
        print(f"at most {step:.2f}: {sum(ratio <= step for ratio in ratios) / len(ratios):.0%}")


if __name__ == "__main__":
    main()
