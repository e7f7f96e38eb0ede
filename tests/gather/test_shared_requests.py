"""Pods that ask for the same share one value, and no others do."""

import msgspec

from rollout.gather.cluster.decode import SharedValues
from rollout.gather.cluster.demands import pod_requests
from rollout.gather.cluster.wire import Container, PodSpec, Requirements

SMALL = Container(resources=Requirements(requests={"cpu": "100m"}))
LARGE = Container(resources=Requirements(requests={"cpu": "1", "memory": "1Gi"}))
SIDECAR = msgspec.structs.replace(LARGE, restart_policy="Always")
WITH_PORT = msgspec.structs.replace(SMALL, ports=msgspec.Raw(b'[{"hostPort": 80}]'))
# Each asks for something else, though parts of them are the same.
SPECS = (
    PodSpec(),
    PodSpec(containers=(SMALL,)),
    PodSpec(containers=(SMALL, SMALL)),
    PodSpec(containers=(WITH_PORT,)),
    PodSpec(containers=(SMALL, LARGE)),
    PodSpec(init_containers=(LARGE,), containers=(SMALL,)),
    PodSpec(init_containers=(LARGE,), containers=(SMALL,), overhead={"cpu": "300m"}),
    PodSpec(init_containers=(SIDECAR, LARGE), containers=(SMALL,)),
    PodSpec(containers=(SMALL,), overhead={"cpu": "250m"}),
    PodSpec(containers=(SMALL,), resources=Requirements(requests={"cpu": "250m", "memory": "1"})),
)


def test_requests_are_shared_only_between_pods_that_ask_for_the_same() -> None:
    shared = SharedValues()
    first = [shared.requests(spec) for spec in SPECS]
    assert first == [pod_requests(spec) for spec in SPECS]
    assert len(set(first)) == len(SPECS)
    again = [shared.requests(msgspec.structs.replace(spec)) for spec in SPECS]
    assert all(one is other for one, other in zip(first, again, strict=True))
