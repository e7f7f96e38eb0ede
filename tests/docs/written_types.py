"""Documents whose form is another program's: Ansible's inventories and Kubernetes' lists, written down as types."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from msgspec import Meta

from rollout.model.detection import Source
from rollout.model.host import UpdateOperation

Untemplated = TypedDict(
    "Untemplated", {"__ansible_unsafe": Annotated[str, Meta(description="a text that Ansible takes for no template")]}
)


class HostVariables(TypedDict):
    """How a host is reached, and what is known of it."""

    ansible_host: NotRequired[Annotated[str, Meta(description="its address")]]
    ansible_port: NotRequired[Annotated[int, Meta(description="of SSH")]]
    ansible_user: NotRequired[Annotated[str, Meta(description="of SSH")]]
    ansible_ssh_private_key_file: NotRequired[Annotated[str, Meta(description="a path")]]
    ansible_ssh_common_args: NotRequired[Annotated[str, Meta(description="options of OpenSSH")]]
    rollout_ready: Annotated[bool, Meta(description="its kubelet reports Ready")]
    rollout_schedulable: Annotated[bool, Meta(description="its Node is not cordoned")]
    rollout_control_plane: Annotated[bool, Meta(description="it is of the control plane")]
    rollout_roles: Annotated[Sequence[str], Meta(description="those of its Node's labels")]
    rollout_zone: Annotated[str, Meta(description="of its Node; empty where it has none")]
    rollout_os_image: Annotated[Untemplated, Meta(description="as its kubelet reports it")]
    rollout_kubelet_version: Annotated[Untemplated, Meta(description="as its kubelet reports it")]
    rollout_labels: Annotated[Mapping[str, str], Meta(description="of its Node")]
    rollout_annotations: Annotated[Mapping[str, Untemplated], Meta(description="rollout's own on its Node")]
    rollout_needs_reboot: NotRequired[
        Annotated[
            bool, Meta(description="an update is staged, or another source of `detect.sources` asks for a reboot")
        ]
    ]
    rollout_detected_by: NotRequired[
        Annotated[Sequence[Source], Meta(description="the sources of `detect.sources` that do")]
    ]
    rollout_operation: NotRequired[Annotated[UpdateOperation, Meta(description="update_engine's word")]]
    rollout_running_version: NotRequired[Annotated[str, Meta(description="of the operating system")]]
    rollout_staged_version: NotRequired[Annotated[str, Meta(description="that a reboot would bring; empty: none")]]
    rollout_boot_id: NotRequired[Annotated[str, Meta(description="of the host")]]


class HostGroup(TypedDict):
    """A group of hosts: `nodes`, `cordoned`, `needs_reboot`, `role_…`, `zone_…`, `os_version_…`."""

    hosts: Annotated[Sequence[str], Meta(description="names of Nodes")]


class AllGroup(TypedDict):
    """Ansible's group of groups."""

    children: Annotated[Sequence[str], Meta(description="names of groups")]


class InventoryMeta(TypedDict):
    """What spares Ansible a question a host."""

    hostvars: Annotated[Mapping[str, HostVariables], Meta(description="by the Node's name")]


class Manifest(TypedDict):
    """A Kubernetes object; the API's own schemas say more of it."""

    apiVersion: Annotated[str, Meta(description="as the API has it")]
    kind: Annotated[str, Meta(description="as the API has it")]
    metadata: Annotated[Mapping[str, Any], Meta(description="as the API has it")]


class ManifestList(TypedDict):
    """Objects for `kubectl apply -f -`."""

    apiVersion: Annotated[Literal["v1"], Meta(description="of the list")]
    kind: Annotated[Literal["List"], Meta(description="of the list")]
    items: Annotated[Sequence[Manifest], Meta(description="the objects, in the order in which they are needed")]
