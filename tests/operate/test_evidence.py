"""Promotion by evidence: staging proves, production follows. Two labs, the real program, OpenSSH's
own signatures.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.evidence_files import SIGNATURE_NAMESPACE
from rollout.lab.api.resources import CONFIGMAPS, NAMESPACES
from rollout.lab.hosts.faults import HostFaults, RebootFault
from rollout.lab.lab import Lab
from tests.apply.conftest import Rollout, Started
from tests.operate.conftest import ONCE, assert_all_done, assert_untouched
from tests.state import stored

STAGING = ("--set", "cluster.name=staging")
VERSION = "4152.2.0"


def keygen(*words: str, content: str = "") -> str:
    done = subprocess.run(
        ["ssh-keygen", *words], input=content, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with two keys, and the file that says that `staging` has the first."""
    for name in ("staging", "other"):
        keygen("-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / name))
    public = (tmp_path / "staging.pub").read_text()
    (tmp_path / "signers").write_text(f'staging namespaces="{SIGNATURE_NAMESPACE}" {public}')
    return tmp_path


def requires(keys: Path, source: object, **more: object) -> tuple[str, ...]:
    rules = {
        "cluster": "staging",
        "allowed-signers": keys / "signers",
        "hours": 0,
        "nodes": 4,
        **more,
    }
    named = (
        word
        for name, value in rules.items()
        for word in ("--set", f"evidence.{name.replace('_', '-')}={value}")
    )
    return ("--require-evidence", str(source), *named)


def proved(lab: Lab, keys: Path, rollout: Rollout, *selection: str) -> Path:
    """What staging proves: its document, signed."""
    rollout(lab, *ONCE, *selection).ends(0)
    file = keys / "good.json"
    made = rollout(
        lab, "evidence", *STAGING, "--out", str(file), "--sign-key", str(keys / "staging")
    ).ends(0)
    assert re.search(r"\d nodes?, verified for 0", made.stderr)
    return file


def signed(
    keys: Path, document: Mapping[str, Any], name: str = "forged.json", key: str = "staging"
) -> Path:
    """A document that somebody has made by hand, and signed."""
    file = keys / name
    text = json.dumps(document)
    file.write_text(text)
    words = ("-Y", "sign", "-f", str(keys / key), "-n", SIGNATURE_NAMESPACE)
    file.with_name(f"{name}.sig").write_text(keygen(*words, content=text))
    return file


def ago(**past: float) -> str:
    return f"{datetime.now(UTC) - timedelta(**past):%Y-%m-%dT%H:%M:%SZ}"


def by_hand(lab: Lab) -> dict[str, Any]:
    """What would be believed there, where it is signed: of staging, whose uid is not this
    cluster's.
    """
    uid = lab.call(lambda: stored(lab, NAMESPACES, "kube-system")["metadata"]["uid"])
    return {
        "kind": "node-rollout-evidence",
        "format_version": "1.0",
        "version": VERSION,
        "nodes": [f"worker-{number}" for number in range(9)],
        "cluster": {"uid": f"not-{uid}", "name": "staging"},
        "made_at": ago(minutes=1),
        "last_reboot": ago(days=2),
    }


def test_production_takes_what_staging_has_proved_and_waits_for_the_rest(
    started: Started, rollout: Rollout, keys: Path
) -> None:
    staging = started("default", 4)
    production = started("default", 4)
    nothing = rollout(staging, "evidence", *STAGING)
    assert nothing.code == 1
    assert "no node here was rebooted into another version" in nothing.stderr
    file = proved(staging, keys, rollout)
    document = json.loads(file.read_text())
    assert document["version"] == VERSION
    assert document["cluster"]["name"] == "staging"
    assert len(document["nodes"]) == 4
    waiting = requires(keys, file, nodes=5, hours=2)
    ended = rollout(production, *ONCE, *waiting).ends(0)
    lacking = f"version {VERSION} is not verified in staging yet: 4 of 5 nodes, 0 of 2 h"
    assert lacking in str(ended.lines)
    assert_untouched(production)
    shown = rollout(
        production, "status", "-o", "wide", *waiting[2:], "--set", f"evidence.source={file}"
    )
    assert lacking in " ".join(shown.stdout.split())
    assert "unproven" in shown.stdout
    # a folder holds those of several versions
    signed(keys, {**document, "version": "4200.0.0"}, "next.json")
    ended = rollout(production, *ONCE, *requires(keys, keys)).ends(0)
    assert_all_done(production)


def test_nodes_on_which_it_failed_are_named_after_its_release_and_an_abort(
    started: Started, rollout: Rollout
) -> None:
    lab = started("default", 5)
    faults = {"worker-1": RebootFault.ROLLS_BACK, "worker-2": RebootFault.NEVER_RETURNS}
    for name, fault in faults.items():
        lab.call(partial(lab.machines[name].inflict, HostFaults(reboot=fault)))
    ended = rollout(
        lab, *ONCE, "--max-failures", "5", "--max-unavailable", "5", "--reboot-timeout", "4s"
    )
    assert {"worker-1": "rolled-back", "worker-2": "not-back"}.items() <= ended.outcomes.items()
    rollout(lab, "release", VERSION).ends(0)
    failed = {
        "worker-1": "rolled back from this version",
        "worker-2": "did not come back with this version",
    }
    assert json.loads(rollout(lab, "evidence", VERSION).stdout)["failed"] == failed
    rollout(lab, "abort", "--yes", "--wait", "1s")
    assert json.loads(rollout(lab, "evidence", VERSION).stdout)["failed"] == failed


def test_each_version_of_each_cluster_has_a_file_of_its_own_in_a_folder_that_is_made(
    started: Started, rollout: Rollout, keys: Path
) -> None:
    folder = keys / "made" / "evidence"
    files = set()
    for _ in range(2):
        # Two clusters to which their operators have given one name.
        staging = started("default", 4)
        proved(staging, keys, rollout, "--node", "worker-1")
        signing = ("--sign-key", str(keys / "staging"))
        made = rollout(staging, "evidence", *STAGING, "--out", f"{folder}/", *signing).ends(0)
        uid = staging.call(partial(stored, staging, NAMESPACES, "kube-system"))["metadata"]["uid"]
        file = f"{VERSION}-{uid[:8]}.json"
        assert f"Written: {folder}/{file}" in made.stderr
        files |= {file, f"{file}.sig"}
    assert len(files) == 4
    assert {file.name for file in folder.iterdir()} == files


def test_a_folder_of_evidence_is_no_file(started: Started, rollout: Rollout, keys: Path) -> None:
    (keys / "a-file").touch()
    refused = rollout(started("default", 1), "evidence", *STAGING, "--out", f"{keys}/a-file/").ends(
        1
    )
    assert f"{keys}/a-file is not a directory" in refused.stderr


def test_a_configmap_carries_it_and_an_older_document_does_not_count_again(
    started: Started, rollout: Rollout, keys: Path
) -> None:
    production = started("default", 4)
    old = by_hand(production)
    failed = {
        **old,
        "made_at": ago(seconds=-60),
        "failed": {"worker-9": "failed with this version"},
    }

    def publish(document: Mapping[str, Any]) -> None:
        file = signed(keys, document)
        data = {
            "a.json": file.read_text(),
            "a.json.sig": file.with_name(f"{file.name}.sig").read_text(),
        }
        name = {"name": "node-rollout-evidence", "namespace": "kube-system"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": name, "data": data}

        def put() -> None:
            if production.store.get(CONFIGMAPS, name["name"], name["namespace"]) is not None:
                production.store.remove(CONFIGMAPS, name["name"], name["namespace"])
            production.store.create(CONFIGMAPS, body)

        production.call(put)

    operate = (*ONCE, *requires(keys, "configmap"))
    assert "ConfigMap kube-system/node-rollout-evidence: it does not exist" in str(
        rollout(production, *operate).lines
    )
    publish(failed)
    assert "1 node failed there (worker-9: failed with this version)" in str(
        rollout(production, *operate).lines
    )
    publish(old)
    assert "a later one, created at " in str(rollout(production, *operate).lines)
    assert_untouched(production)
    publish({**old, "made_at": ago(seconds=-90)})
    rollout(production, *operate).ends(0)
    assert_all_done(production)


def test_evidence_that_is_not_what_it_says_is_refused(
    started: Started, rollout: Rollout, keys: Path
) -> None:
    production = started("default", 2)
    good = by_hand(production)
    own = str(good["cluster"]["uid"]).removeprefix("not-")
    cases = {
        "its signature is not by staging": signed(keys, good, "stolen.json", key="other"),
        "it is from the cluster dev, not from staging": signed(
            keys, {**good, "cluster": {"uid": "u", "name": "dev"}}, "d.json"
        ),
        "it was created in this cluster": signed(
            keys, {**good, "cluster": {"uid": own, "name": "staging"}}, "own.json"
        ),
        "it is stale: created ": signed(keys, {**good, "made_at": ago(days=8)}, "stale.json"),
        "in the future": signed(keys, {**good, "made_at": ago(days=-1)}, "future.json"),
        "it does not say when": signed(keys, {**good, "made_at": "soon"}, "when.json"),
        "has no evidence from staging (evidence exists for: 4000.0.0)": signed(
            keys, {**good, "version": "4000.0.0"}, "v.json"
        ),
        "it is not an evidence document": signed(keys, {"version": 7}, "shape.json"),
        "this program reads": signed(keys, {**good, "format_version": "2.0"}, "newer.json"),
        "1 of 4 nodes": signed(keys, {**good, "nodes": ["worker-1"] * 9}, "same.json"),
        "No such file or directory": keys / "nothing.json",
    }
    edited = signed(keys, {**good, "nodes": ["worker-1"]}, "edited.json")
    edited.write_text(json.dumps(good))
    cases["incorrect signature"] = edited
    unsigned = signed(keys, good, "unsigned.json")
    unsigned.with_name("unsigned.json.sig").unlink()
    cases["unsigned.json.sig: No such file"] = unsigned
    for why, file in cases.items():
        ended = rollout(production, *ONCE, *requires(keys, file))
        assert why in str(ended.lines), (why, ended.stderr, ended.lines[-1])
        assert "Traceback" not in ended.stderr
    (keys / "signers").chmod(0o666)
    ended = rollout(production, *ONCE, *requires(keys, signed(keys, good)))
    assert "signers (mode" in str(ended.lines)
    assert_untouched(production)


def test_what_is_required_is_said_whole(started: Started, rollout: Rollout, keys: Path) -> None:
    lab = started("default", 2)
    ended = rollout(lab, *ONCE, "--require-evidence", "configmap")
    assert ended.code == 64
    assert "--require-evidence needs evidence.cluster" in ended.stderr
    for url in ("https://ops:secret@bucket.example/a.json", "https://bucket.example/a.json?sig=1"):
        rollout(lab, *ONCE, *requires(keys, url)).ends(64)
