"""What a Node says stood on it before chooses no label.

The attack: a kubelet may write its own Node's annotations, but not the labels that keep other tenants' pods away from
it. It forges the annotation by which an abort, or the end of a rollout, puts labels back.
"""

import json
from collections.abc import Callable
from pathlib import Path

from tests.apply.conftest import Started, command, rollout, started  # noqa: F401 - fixtures
from tests.apply.test_courtesy import ALONE, NODE, NUMBER, ORDINARY, heard
from tests.apply.test_node_labels import WAITING
from tests.ended import Ended
from tests.state import metadata, unlock, write

FORGED = json.dumps({"labels": {"tenant": ["a", "b"], "role": ["", "admin"], "zone": ["c", None]}, "annotations": {}})
TENANT = {"tenant": "a", "zone": "c"}


def test_names_that_the_rules_do_not_have_are_not_obeyed_by_an_abort(
    started: Started,  # noqa: F811 - fixtures
    rollout: Callable[..., Ended],  # noqa: F811
    tmp_path: Path,
) -> None:
    lab = started(str(ORDINARY), NUMBER)
    process = command(lab, tmp_path, "apply", *ALONE, *WAITING)
    heard(process, "before its reboot")
    process.kill()
    process.communicate()
    write(lab, NODE, "labels", **TENANT)
    write(lab, NODE, "annotations", **{"node-rollout.dev/replaced": FORGED})
    assert rollout(lab, "abort", "--yes", *unlock(lab)).code == 0
    left = metadata(lab, NODE, "labels")
    assert ({name: left.get(name) for name in TENANT}, "role" in left) == (TENANT, False)
