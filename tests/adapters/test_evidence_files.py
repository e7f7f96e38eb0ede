"""Documents of evidence from a folder and from the ConfigMap."""

from pathlib import Path

import msgspec
import pytest

from rollout.adapters.evidence_files import CONFIGMAP, read_documents

DATA = {f"{number:03}.json{suffix}": "{}" for number in range(101) for suffix in ("", ".sig")}


class OneConfigMap:
    """An API server whose evidence has these entries."""

    def __init__(self, data: dict[str, str]) -> None:
        self.data = data

    def get(self, _path: str, _query: object = None) -> bytes:
        return msgspec.json.encode(
            {"metadata": {"name": "node-rollout-evidence"}, "data": self.data}
        )


@pytest.mark.parametrize("entries", [200, 202])
def test_more_than_a_hundred_documents_are_refused_rather_than_cut_off(
    entries: int, tmp_path: Path
) -> None:
    data = dict(list(DATA.items())[:entries])
    for name, content in data.items():
        (tmp_path / name).write_text(content)
    api = OneConfigMap(data)
    for source in (CONFIGMAP, str(tmp_path)):
        documents = read_documents(source, api, "kube-system")  # type: ignore[arg-type]
        problems = [document.problem for document in documents]
        assert problems == ([""] * 100 if entries == 200 else ["it has more than 100 documents"])
