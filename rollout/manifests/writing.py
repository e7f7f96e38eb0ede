"""The objects as texts: a YAML stream, a List in JSON, or the files of a kustomization."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import yaml

from rollout.manifests.installation import Installation, Json
from rollout.manifests.objects import config_map, objects
from rollout.manifests.pod import config_name

_WIDTH = 100
_GO_WORDS = frozenset({"y", "n"})


class _Dumper(yaml.SafeDumper):
    """As people write it: texts of several lines as such, and nothing by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's interface
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else "'" if _is_other_to_go(value) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


def _is_other_to_go(value: str) -> bool:
    """Whether kubectl, kustomize or Helm would read it as a number or a truth value, where Python's YAML does not."""
    for read in (float, lambda text: int(text, 0)):
        with suppress(ValueError):
            read(value)
            return True
    return value.lower() in _GO_WORDS


def _list(dumper: yaml.SafeDumper, items: Sequence[object]) -> yaml.SequenceNode:
    """Verbs and other words on one line."""
    words = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def yaml_text(documents: Iterable[Json]) -> str:
    """A stream of documents."""
    return yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=_WIDTH, explicit_start=True)


def list_document(documents: Sequence[Json]) -> Json:
    """All of them as one object, as kubectl writes several in JSON."""
    return {"apiVersion": "v1", "kind": "List", "items": documents}


def kustomization(installation: Installation) -> Mapping[str, str]:
    """Files by name: a base, with the settings as files of their own; pods read them anew."""
    config = config_map(installation)
    resources = [document for document in objects(installation) if document["kind"] != "ConfigMap"]
    files = {file_name(document): yaml_text([document]) for document in resources}
    generator = {
        "name": config_name(installation),
        "namespace": installation.access.namespace,
        "files": sorted(config["data"]),
        "options": {"disableNameSuffixHash": True, "labels": config["metadata"]["labels"]},
    }
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
        "configMapGenerator": [generator],
    }
    return {"kustomization.yaml": yaml_text([document]), **files, **config["data"]}


def file_name(document: Json) -> str:
    """Its file's: by the kind, and of the Roles and their bindings by the namespace as well."""
    is_role = document["kind"] in ("Role", "RoleBinding")
    place = f"-{document['metadata']['namespace']}" if is_role else ""
    return f"{document['kind'].lower()}{place}.yaml"
