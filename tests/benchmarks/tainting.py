"""The soft taint on a thousand nodes: seconds and requests to set it and to take it away, and under flow control.

The server is a lab's, in this process, so that both pay for one another's CPU. Under flow control each fourth write is
answered with 429 and `Retry-After: 1`; `early` counts writes that came again sooner than that.

Run: python tests/benchmarks/tainting.py [NODES]
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import connect
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.node.tainting import Tainting
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.requests import RequestRecord
from rollout.lab.api.resources import NODES
from rollout.model.progress import StepEvent
from rollout.model.soft_taint import AWAITING_REBOOT
from tests.execution.drains import Unfenced, add_node
from tests.standalone_api import StandaloneApi, standalone_api

TOO_MANY, RETRY_AFTER = 429, 1


class Deaf:
    """An observer that hears nothing."""

    def notify(self, event: StepEvent) -> None:
        """Nothing."""


def early(log: Iterable[RequestRecord]) -> int:
    """How many writes came again before they might."""
    refused: dict[str, float] = {}
    again = 0
    for request in log:
        again += request.at - refused.pop(request.path, float("-inf")) < RETRY_AFTER
        if request.status == TOO_MANY:
            refused[request.path] = request.at
    return again


def measured(server: StandaloneApi, what: str, act: Callable[[], object], *, left: int) -> None:
    """Print what it took; so many nodes have the taint afterwards."""
    before, began = len(server.server.requests), time.monotonic()
    act()
    seconds, log = time.monotonic() - began, server.server.requests.since(before)
    nodes = server.call(lambda: list(server.store.items(NODES)))
    tainted = sum(any(taint["key"] == AWAITING_REBOOT.key for taint in node["spec"]["taints"]) for node in nodes)
    assert tainted == left, (tainted, left)
    print(f"{what:<28}{seconds:>7.2f} s{len(log):>7} requests{early(log):>5} early", flush=True)


def main() -> None:
    """Set it and take it away, first at ease, then under flow control."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=1000)
    names = [f"node-{number}" for number in range(parser.parse_args().nodes)]
    with tempfile.TemporaryDirectory() as name, standalone_api(Path(name)) as server:
        for node in names:
            add_node(server, node)
        clock = SystemClock()
        cluster = PatientApi(connect(server.kubeconfig, None), clock)
        tainting = Tainting(cluster, Unfenced(), Reporter(Deaf(), clock), StopRequest())
        for title, fault in (("at ease", None), ("under flow control", FLOW_CONTROL)):
            if fault is not None:
                server.call(lambda: server.server.faults.add(FLOW_CONTROL))
            standing = tainting.while_waiting(names, ())
            measured(server, f"{title}: set", standing.__enter__, left=len(names))
            measured(server, f"{title}: taken away", lambda: standing.__exit__(None, None, None), left=0)  # noqa: B023


FLOW_CONTROL = ApiFault(
    answer=FaultAnswer.TOO_MANY_REQUESTS, verb="patch", resource="nodes", probability=0.25, retry_after=RETRY_AFTER
)


if __name__ == "__main__":
    main()
