"""The node of this process. A drain would evict its pod, so the plan defers the node.

At the end, a soft taint and a label keep the next pod away, and `operate` evicts its pod, so that
the next process reboots the node.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly


class OwnPod(Struct, frozen=True):
    """This process's pod; unknown values are empty."""

    # From ROLLOUT_NODE_NAME.
    node_variable: str = ""
    namespace: str = ""
    name: str = ""
    # The node's, unless a sandbox has its own kernel.
    boot_id: str = ""
    server: str = ""

    @property
    def key(self) -> str:
        """Return `namespace/name`, or empty."""
        return f"{self.namespace}/{self.name}" if self.namespace and self.name else ""


class OwnNode(Struct, frozen=True):
    """This process's node; `is_only_place` if no other fits."""

    name: str
    pod: str = ""
    is_only_place: bool = False

    @property
    def finding(self) -> "OwnNodeOnly | OwnNodeDeferred":
        """Return why the node is not rebooted."""
        # Importing findings would slow each start down.
        from rollout.model.finding import OwnNodeDeferred, OwnNodeOnly  # noqa: PLC0415

        return OwnNodeOnly(self.pod) if self.is_only_place else OwnNodeDeferred(self.pod)

    @property
    def marker(self) -> str:
        """Return who defers the node, or empty."""
        return f"pod {self.pod}" if self.pod else ""
