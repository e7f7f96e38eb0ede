"""Deployments, and how they replace their pods."""

from msgspec import Struct


class DeploymentProgress(Struct, frozen=True):
    """How far a Deployment has replaced its pods.

    `is_observed`: its controller has seen the change. `is_late`: its progress deadline is over.
    """

    desired: int
    updated: int
    available: int
    is_observed: bool
    is_late: bool


class Deployment(Struct, frozen=True):
    """A Deployment, reduced.

    A rolling update has at most `surge` pods more and `unavailable` pods fewer. `restarted_at` is
    the annotation of the last restart, or empty.
    """

    namespace: str
    name: str
    uid: str
    is_rolling: bool
    is_paused: bool
    surge: int
    unavailable: int
    version: str
    restarted_at: str
    progress: DeploymentProgress

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"
