import msgspec

from rollout.gather.cluster.snapshot import node_path
from rollout.model import marks
from rollout.model.memory import Pause
from rollout.ports import ClusterApi


def pause_node(api: ClusterApi, name: str, pause: Pause) -> None:
    details = msgspec.json.encode(pause).decode()
    _annotate(api, name, {marks.PAUSED: "true", marks.PAUSED_DETAILS: details})


def unpause_node(api: ClusterApi, name: str) -> None:
    _annotate(api, name, {marks.PAUSED: None, marks.PAUSED_DETAILS: None})


def _annotate(api: ClusterApi, name: str, annotations: dict[str, str | None]) -> None:
    api.patch(node_path(name), {"metadata": {"annotations": annotations}})
