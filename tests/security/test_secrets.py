"""Tokens, passwords and passphrases leave by the back door: a token file that ends in a newline
makes the HTTP client print the whole header, a server sends back what it was sent, a kubeconfig's
URL with a password in it is saved with each plan, a gate command hands its environment on. The
rule: header values are trimmed and checked before a client sees them and never shown, credentials
are taken out of addresses, and no program that we start inherits a secret of ours. What a gate
command is told is no flag's name, so that it may run `rollout` itself.
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from rollout.adapters.ansible.inventory import read_inventory
from rollout.adapters.ansible.settings import AnsibleSettings
from rollout.adapters.prometheus import TOKEN_VARIABLE
from rollout.adapters.ssh.keys import PASSPHRASE_VARIABLE
from rollout.errors import ExitCode
from rollout.gather.inventory import SshDefaults
from rollout.lab.lab import Lab
from rollout.model.gates import GateVariable
from tests.ended import Ended, invoked
from tests.scripted_api import Exchange, Kubeconfig, scripted

SECRET = "s3cr3t-t0ken"
SECRETS = {TOKEN_VARIABLE: SECRET, PASSPHRASE_VARIABLE: SECRET}


def rollout(home: Path, *arguments: str, **variables: str) -> Ended:
    return invoked(home, variables, arguments)


def assert_unshown(ended: Ended) -> None:
    assert "s3cr3t" not in ended.stdout + ended.stderr
    assert "this is a bug" not in ended.stderr


def changed_kubeconfig(lab: Lab, home: Path, user: Mapping[str, object]) -> dict[str, str]:
    """The lab's environment with another login."""
    document = yaml.safe_load(Path(lab.environment["KUBECONFIG"]).read_text())
    document["users"][0]["user"] = user
    path = home / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return {**lab.environment, "KUBECONFIG": str(path)}


def lab_token(lab: Lab) -> str:
    return str(
        yaml.safe_load(Path(lab.environment["KUBECONFIG"]).read_text())["users"][0]["user"]["token"]
    )


def test_a_token_file_may_end_in_a_newline(untouched: Lab, home: Path) -> None:
    (home / "token").write_text(f"{lab_token(untouched)}\n")
    rollout(home, "status", **changed_kubeconfig(untouched, home, {"tokenFile": "token"})).ends(0)


@pytest.mark.parametrize(
    "token", [f"{SECRET}\nX-Other: {SECRET}", f"{SECRET}\x07", f"{SECRET}\u20ac"]
)
def test_a_token_that_no_header_can_carry_is_not_shown(
    token: str, untouched: Lab, home: Path
) -> None:
    (home / "token").write_text(token)
    ended = rollout(
        home, "status", "-v", **changed_kubeconfig(untouched, home, {"tokenFile": "token"})
    ).ends(ExitCode.ERROR)
    assert "the token of user " in ended.stderr
    assert "cannot be sent" in ended.stderr
    assert_unshown(ended)


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_server_that_sends_the_login_back_is_not_quoted(status: int, home: Path) -> None:
    def script(exchange: Exchange) -> None:
        exchange.answer(
            status, f"you sent {exchange.headers['Authorization']}".encode(), Retry_After="0"
        )

    with scripted(script) as server:
        Kubeconfig(server.url, user={"token": SECRET}).write(home / "kubeconfig")
        ended = invoked(home, {"KUBECONFIG": "kubeconfig"}, ("doctor", "-o", "json", "-v"))
    assert ended.code == ExitCode.ERROR
    assert_unshown(ended)


GATE = """
import json, os, subprocess, sys
asked = subprocess.run([sys.executable, "-m", "rollout", "status", "-o", "json"], capture_output=True, text=True)
with open("environment", "w") as file:
    json.dump({"variables": dict(os.environ), "code": asked.returncode, "stderr": asked.stderr,
               "nodes": len(json.loads(asked.stdout)["nodes"]) if asked.stdout else 0}, file)
sys.exit(os.environ["ROLLOUT_GATE_STAGE"] == "node")
"""


def test_a_gate_command_inherits_no_secret_and_may_run_rollout(untouched: Lab, home: Path) -> None:
    (home / "gate.py").write_text(GATE)
    command = shlex.join([sys.executable, "gate.py"])
    flags = (
        *("apply", "--yes", "-o", "json", "--node", "worker-1"),
        *("--set", f"gates.command={command}"),
    )
    ended = rollout(home, *flags, **untouched.environment, **SECRETS)
    assert ended.summary["skipped"] == ["worker-1"], ended.stderr
    written = json.loads((home / "environment").read_text())
    inherited = written["variables"]
    assert inherited["ROLLOUT_GATE_NODE"] == "worker-1"
    assert {name for name in inherited if name.startswith("ROLLOUT_")} - set(
        untouched.environment
    ) == set(GateVariable)
    assert SECRET not in inherited.values()
    assert (written["code"], written["nodes"]) == (0, 5), written["stderr"]


LOGIN = """#!{python}
import json, os
json.dump(dict(os.environ), open({written!r}, "w"))
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {token}}}))
"""


def test_a_login_program_inherits_no_secret_of_ours(untouched: Lab, home: Path) -> None:
    """It has all the rest of the environment, as under kubectl: it may log in by it."""
    program = home / "login"
    written = str(home / "environment")
    program.write_text(
        LOGIN.format(python=sys.executable, written=written, token={"token": lab_token(untouched)})
    )
    program.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    environment = {**changed_kubeconfig(untouched, home, user), **SECRETS, "OTHER": "value"}
    rollout(home, "status", **environment).ends(0)
    inherited = json.loads((home / "environment").read_text())
    assert inherited["OTHER"] == "value"
    assert not set(inherited) & set(SECRETS)


ANSIBLE = Path(sys.executable).with_name("ansible-inventory")


needs_ansible = pytest.mark.skipif(not ANSIBLE.exists(), reason="ansible-core is not installed")


@needs_ansible
def test_ansibles_programs_inherit_no_secret(home: Path) -> None:
    program = home / "hosts"
    told = {"all": {"hosts": ["a"]}, "_meta": {"hostvars": {}}}
    program.write_text(f"#!/bin/sh\nenv > {home}/environment\ncat <<END\n{json.dumps(told)}\nEND\n")
    program.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", **SECRETS}
    read_inventory(
        program,
        AnsibleSettings(folder=home, environment=environment),
        SshDefaults(),
        by_ansible=False,
    )
    assert SECRET not in (home / "environment").read_text()


def test_a_kubeconfig_that_cannot_be_read_is_not_quoted(home: Path) -> None:
    (home / "kubeconfig").write_text(f"users:\n- user:\n    token: {SECRET}: x\n")
    ended = rollout(home, "status", KUBECONFIG="kubeconfig")
    assert "kubeconfig is not valid YAML: line 3: " in ended.stderr
    assert_unshown(ended)
