from collections.abc import Iterator

from rollout.errors import ApiNotFoundError, GateError
from rollout.gather.cluster import wire
from rollout.gather.cluster.decode import decode
from rollout.model.object_reference import ObjectReference
from rollout.ports import ClusterApi


class _GroupVersion(wire.Wire, frozen=True):
    version: str = ""


class _Group(wire.Wire, frozen=True):
    preferred_version: _GroupVersion = _GroupVersion()
    versions: tuple[_GroupVersion, ...] = ()


class _Resource(wire.Wire, frozen=True):
    name: str = ""
    namespaced: bool = False


class _Resources(wire.Wire, frozen=True):
    resources: tuple[_Resource, ...] = ()


def read_object(api: ClusterApi, reference: ObjectReference) -> bytes:
    """Return JSON, in any version that the API server serves.

    Raises `GateError` for no version or object.
    """
    for path in _group_versions(api, reference.group):
        served_resources = decode(api.get(path), _Resources, path).resources
        for resource in served_resources:
            if resource.name == reference.plural:
                return _read_existing(api, f"{path}{_object_path(reference, resource)}")
    raise GateError(f"the API server does not serve {reference.qualified_plural}")


def _group_versions(api: ClusterApi, group: str) -> Iterator[str]:
    """Yield paths such as `/apis/apps/v1`."""
    if not group:
        yield "/api/v1"
        return
    path = f"/apis/{group}"
    try:
        served = decode(api.get(path), _Group, path)
    except ApiNotFoundError:
        return
    preferred_first = (served.preferred_version, *served.versions)
    versions = [group_version.version for group_version in preferred_first]
    for version in dict.fromkeys(versions):
        yield f"{path}/{version}"


def _object_path(reference: ObjectReference, resource: _Resource) -> str:
    if resource.namespaced and not reference.namespace:
        raise GateError(f"{reference.qualified_plural} are namespaced: write the namespace")
    if reference.namespace and not resource.namespaced:
        raise GateError(f"{reference.qualified_plural} are cluster-scoped: leave out the namespace")
    namespace = f"/namespaces/{reference.namespace}" if reference.namespace else ""
    return f"{namespace}/{reference.plural}/{reference.name}"


def _read_existing(api: ClusterApi, path: str) -> bytes:
    try:
        return api.get(path)
    except ApiNotFoundError as error:
        raise GateError("it does not exist") from error
