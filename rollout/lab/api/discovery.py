"""How clients find out what is served: all groups in the aggregated form, and the resources of one version."""

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


def _groups() -> dict[str, str]:
    return {resource.group: resource.version for resource in SERVED if resource.group}


def _in_group(group: str) -> list[Resource]:
    return sorted((resource for resource in SERVED if resource.group == group), key=lambda resource: resource.plural)


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


def openapi(path: list[str]) -> Json | None:
    """`/openapi/v3`, and what lies below: where the document of each version is, and the documents.

    They are the least that makes clients leave the validation of fields to the server: no schemas.
    """
    if not path:
        versions = dict.fromkeys(resource.api_version for resource in SERVED)
        paths = [f"api/{version}" if "/" not in version else f"apis/{version}" for version in versions]
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in paths}}
    served = [resource for resource in SERVED if resource.api_version == "/".join(path[1:])]
    if not served:
        return None
    patched = {_openapi_path(resource): _openapi_patch(resource) for resource in served if "patch" in resource.verbs}
    return {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": patched}


def _openapi_path(resource: Resource) -> str:
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
    place = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}{place}/{resource.plural}/{{name}}"


def _openapi_patch(resource: Resource) -> Json:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")]
    return {"patch": {"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": kind}}
