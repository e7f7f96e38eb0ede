"""The soft taint on a thousand nodes, over a real wire and under flow control: `tests/benchmarks/tainting.py` in small.

Seconds are the CPU's, of client and server together: how long it takes on an idle machine, whatever else runs here.
"""

import time
from pathlib import Path

import pytest

from rollout.adapters.clock import SystemClock
from rollout.adapters.kube.api import connect
from rollout.execution.base.patience import PatientApi
from rollout.execution.base.reporting import Reporter
from rollout.execution.base.stop import StopRequest
from rollout.execution.node.tainting import Tainting
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import NODES
from rollout.model.soft_taint import AWAITING_REBOOT
from tests.execution.conftest import Recorder
from tests.execution.drains import Unfenced, add_node
from tests.standalone_api import StandaloneApi, standalone_api

NAMES = [f"node-{number}" for number in range(1000)]
RETRY_AFTER = 1
FLOW_CONTROL = ApiFault(
    answer=FaultAnswer.TOO_MANY_REQUESTS, verb="patch", resource="nodes", probability=0.03, retry_after=RETRY_AFTER
)
SECONDS = 10


def tainted(api: StandaloneApi) -> int:
    nodes = api.call(lambda: list(api.store.items(NODES)))
    return sum(any(taint["key"] == AWAITING_REBOOT.key for taint in node["spec"].get("taints", ())) for node in nodes)


@pytest.mark.exhaustive
def test_a_thousand_nodes_take_one_write_each_and_nobody_asks_again_too_early(
    tmp_path: Path, recorder: Recorder
) -> None:
    with standalone_api(tmp_path) as api:
        for name in NAMES:
            add_node(api, name)
        api.call(lambda: api.server.faults.add(FLOW_CONTROL))
        clock = SystemClock()
        tainting = Tainting(
            PatientApi(connect(api.kubeconfig, None), clock), Unfenced(), Reporter(recorder, clock), StopRequest()
        )
        before, began = len(api.server.requests), time.process_time()
        with tainting.while_waiting(NAMES, ()):
            assert tainted(api) == len(NAMES)
            seconds = time.process_time() - began
            log = [request for request in api.server.requests.since(before) if request.method == "PATCH"]
        assert tainted(api) == 0
    refused = [request for request in log if request.status == 429]
    assert refused
    assert len(log) == len(NAMES) + len(refused)
    again = {request.path: request.at for request in log if request.status == 200}
    assert min(again[request.path] - request.at for request in refused) >= RETRY_AFTER
    assert seconds <= SECONDS
    assert recorder.events == []
