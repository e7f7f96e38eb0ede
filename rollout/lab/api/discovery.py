"""How clients find out what is served: versions, groups, resources, in the old form and the aggregated one."""

from collections.abc import Iterable

from rollout.lab.api.resources import SERVED, Resource, Subresource
from rollout.lab.api.store import Json

VERSION: Json = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "$Format:%H$",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.26.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}


def api_versions(address: str) -> Json:
    """`/api`; `address` is host:port as clients reach it."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _groups() -> dict[str, str]:
    return {resource.group: resource.version for resource in SERVED if resource.group}


def _in_group(group: str) -> list[Resource]:
    return sorted((resource for resource in SERVED if resource.group == group), key=lambda resource: resource.plural)


def api_groups() -> Json:
    """`/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in _groups()]}


def _group(name: str) -> Json:
    version = _groups()[name]
    named = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [named], "preferredVersion": named}


def api_group(name: str) -> Json | None:
    """`/apis/GROUP`, None where there is no such group."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)} if name in _groups() else None


def resource_list(group: str, version: str) -> Json | None:
    """`/api/v1`, `/apis/GROUP/VERSION`; None where there is no such version."""
    served = [resource for resource in _in_group(group) if resource.version == version]
    if not served:
        return None
    versioned = {"apiVersion": "v1"} if group else {}
    listed = [entry for resource in served for entry in _entries(resource)]
    named = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", **versioned, "groupVersion": named, "resources": listed}


def _entries(resource: Resource) -> Iterable[Json]:
    yield {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
        **_names(resource),
    }
    for subresource in resource.subresources:
        yield _subresource_entry(resource, subresource)


def _names(resource: Resource) -> Json:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: value for key, value in names.items() if value}


def _subresource_entry(resource: Resource, subresource: Subresource) -> Json:
    foreign = {"group": subresource.group, "version": subresource.version} if subresource.group else {}
    return {
        "name": f"{resource.plural}/{subresource.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
        **foreign,
        "kind": subresource.kind,
        "verbs": list(subresource.verbs),
    }


def aggregated(*, core: bool) -> Json:
    """`/api` and `/apis` in one answer each: all groups with all their resources."""
    groups = [""] if core else list(_groups())
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [_aggregated_group(group) for group in groups],
    }


def _aggregated_group(group: str) -> Json:
    resources = _in_group(group)
    version = {
        "version": resources[0].version,
        "resources": [_aggregated_resource(resource) for resource in resources],
        "freshness": "Current",
    }
    return {"metadata": {"name": group} if group else {}, "versions": [version]}


def _aggregated_resource(resource: Resource) -> Json:
    entry = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
        **_names(resource),
    }
    if resource.subresources:
        entry["subresources"] = [_aggregated_subresource(subresource) for subresource in resource.subresources]
    return entry


def _aggregated_subresource(subresource: Subresource) -> Json:
    kind = {"group": subresource.group, "version": subresource.version, "kind": subresource.kind}
    return {"subresource": subresource.name, "responseKind": kind, "verbs": list(subresource.verbs)}


def openapi_index() -> Json:
    """`/openapi/v3`: where the document of each version is."""
    versions = dict.fromkeys(resource.api_version for resource in SERVED)
    paths = [f"api/{version}" if "/" not in version else f"apis/{version}" for version in versions]
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}


def openapi_document(group: str, version: str) -> Json | None:
    """The least that makes clients leave the validation of fields to the server: no schemas."""
    served = [resource for resource in _in_group(group) if resource.version == version]
    if not served:
        return None
    paths = {_openapi_path(resource): _openapi_patch(resource) for resource in served if "patch" in resource.verbs}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": paths}


def _openapi_path(resource: Resource) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    place = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}{place}/{resource.plural}/{{name}}"


def _openapi_patch(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    return {"patch": {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}}
