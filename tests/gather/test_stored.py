"""What storage says of its copies, where it is served in part."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec

from rollout.errors import ApiNotFoundError
from rollout.gather.cluster.storage import CEPH_CLUSTERS, LONGHORN_SETTINGS, read_stored
from rollout.model.cluster import OwnerRef
from tests.planning.builders import pod


class CephAlone:
    """Serves no kind of Longhorn's, as where those are of another version."""

    def pages(self, path: str, _query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        if path != CEPH_CLUSTERS:
            raise ApiNotFoundError(f"no {path}", status=404)
        cluster = {"metadata": {"name": "ceph", "namespace": "rook"}, "status": {"ceph": {"health": "HEALTH_OK"}}}
        yield msgspec.json.encode({"metadata": {}, "items": [cluster]})


def test_a_storage_that_is_not_known_hides_no_other() -> None:
    osds = [replace(pod(f"osd-{number}", f"n{number}", app="rook-ceph-osd"), namespace="rook") for number in (1, 2)]
    manager = pod("manager", "n1", owner="")
    longhorns = replace(manager, owner=OwnerRef("longhorn.io/v1beta3", "InstanceManager", "manager", "uid"))
    stored, unseen = read_stored(CephAlone(), [longhorns, *osds])  # type: ignore[arg-type]
    assert [why.partition(": ")[2] for why in unseen] == [f"no {LONGHORN_SETTINGS}"]
    assert [(data.object, data.spare) for data in stored] == [("cephclusters.ceph.rook.io/rook/ceph", 1)]
