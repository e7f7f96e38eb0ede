"""Deployments, and how they replace their pods."""

from msgspec import Struct


class DeploymentProgress(Struct, frozen=True):
    """How far a Deployment is with replacing its pods after a change of their template.

    Of `desired` replicas, `updated` have the new template, and `available` of these are available.
    `is_observed`: its controller has seen the change. `is_late`: its progress deadline is over.
    """

    desired: int
    updated: int
    available: int
    is_observed: bool
    is_late: bool


class Deployment(Struct, frozen=True):
    """A Deployment, reduced.

    A rolling update has at most `surge` pods more than desired, and at most `unavailable` pods
    fewer. `version` is its resourceVersion. `restarted_at` is what the last restart wrote on its
    template, empty if there was none.
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
