from msgspec import Struct


class DeploymentProgress(Struct, frozen=True):
    """How far a Deployment has replaced its pods."""

    desired: int
    updated: int
    available: int
    # The controller has seen the change.
    is_observed: bool
    # The progress deadline is over.
    is_late: bool


class Deployment(Struct, frozen=True):
    """A Deployment."""

    namespace: str
    name: str
    uid: str
    is_rolling: bool
    is_paused: bool
    # Pods more and fewer in a rolling update.
    surge: int
    unavailable: int
    resource_version: str
    # Empty if never restarted.
    restarted_at: str
    progress: DeploymentProgress

    @property
    def key(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.name}"
