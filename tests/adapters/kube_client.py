"""A client of a scripted API server, which waits for nothing as long as one of a real server."""

from pathlib import Path

from rollout.adapters.kube.api import KubeApi, Timeouts, connect
from tests.scripted_api import Kubeconfig

QUICK = Timeouts(connect=2, read=0.5)


def client(tmp_path: Path, url: str, timeouts: Timeouts = QUICK) -> KubeApi:
    """One whose credentials stand in a kubeconfig of its own."""
    return connect(Kubeconfig(url).write(tmp_path / "kubeconfig"), None, timeouts=timeouts)
