"""What `-v` and `-vv` tell of the real program's work, and that they tell no secret."""

import re
import shlex
from collections.abc import Iterator

import pytest
import yaml

from rollout.adapters.prometheus import TOKEN_VARIABLE
from rollout.adapters.ssh.keys import PASSPHRASE_VARIABLE
from rollout.errors import ExitCode
from rollout.lab.lab import Lab
from tests.cli.conftest import Command
from tests.conftest import StartLab
from tests.scripted_api import Exchange, scripted

CANARY = "c4n4ry"
NO_ALERTS = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'


@pytest.fixture(scope="module")
def untouched(mixed: Lab) -> Iterator[Lab]:
    yield mixed
    assert sum(mixed.scoreboard().reboots.values()) == 0


def told(text: str, channel: str) -> list[str]:
    """What was logged there, without the time."""
    lines = (re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in text.splitlines())
    return [line.partition(": ")[2] for line in lines if line.startswith(f"{channel}: ")]


def test_once_verbose_tells_stages_with_their_time(untouched: Lab, command: Command) -> None:
    quiet = command("plan", lab=untouched)
    verbose = command("plan", "-v", lab=untouched)
    assert quiet.stdout.splitlines()[1:] == verbose.stdout.splitlines()[1:]
    assert told(quiet.stderr, "stage") == []
    stages = told(verbose.stderr, "stage")
    assert [stage.partition(":")[0].rpartition(" ")[0] for stage in stages] == [
        "connect",
        "read the cluster",
        "ask the hosts",
        "plan",
        "plan ended with 0 after",
    ]
    assert re.fullmatch(r"read the cluster \d\.\d\ds: 12 nodes, \d+ pods, \d+ PDBs", stages[1])
    assert re.fullmatch(r"ask the hosts \d\.\d\ds: 12 hosts", stages[2])
    assert told(verbose.stderr, "api") == []
    assert told(verbose.stderr, "ssh") == []


def test_twice_verbose_tells_requests_and_commands_beside_the_run(
    start_lab: StartLab, command: Command
) -> None:
    ended = command("apply", "--yes", "-vv", lab=start_lab("rollback", nodes=5, speed=120)).ends(
        ExitCode.PARTIAL
    )
    assert any(
        re.fullmatch(r"POST /api/v1/namespaces/\S+/pods/\S+/eviction: 201.*", line)
        for line in told(ended.stderr, "api")
    )
    assert any(
        re.match(r"worker-\d \(\S+\): boot ID and staged version, then reboot: ", line)
        for line in told(ended.stderr, "ssh")
    )
    assert re.search(r"✘ worker-\d  rolled back", ended.stderr)
    assert told(ended.stderr, "stage")[-1].startswith(
        f"apply ended with {ExitCode.PARTIAL.value} after"
    )


def test_no_secret_is_told_by_any_of_it(start_lab: StartLab, command: Command) -> None:
    """Each is used: what is never sent cannot leak."""
    lab = start_lab("default", nodes=4, speed=120)
    asked = list[str]()

    def script(exchange: Exchange) -> None:
        asked.append(exchange.headers.get("Authorization", ""))
        exchange.answer(200, NO_ALERTS)

    token = str(yaml.safe_load(lab.kubeconfig.read_text())["users"][0]["user"]["token"])
    with scripted(script) as prometheus:
        secrets = {
            TOKEN_VARIABLE: f"{CANARY}-prometheus",
            PASSPHRASE_VARIABLE: f"{CANARY}-passphrase",
            "ROLLOUT_NOTIFY": (
                f"http://user:{CANARY}-notify@127.0.0.1:9/{CANARY}-path?token={CANARY}-query"
            ),
        }
        gate = shlex.join(("true", f"{CANARY}-gate"))
        flags = (
            *("--yes", "-vv", "--node", "worker-1"),
            *("--set", f"alerts.prometheus-url={prometheus.url}", "--set", f"gates.command={gate}"),
            *("--set", f"reboot.command=sudo -n systemctl reboot # {CANARY}-reboot"),
        )
        ended = command("apply", *flags, lab=lab, variables=secrets)
    assert ended.code == 0, ended.stderr
    assert f"Bearer {CANARY}-prometheus" in asked
    assert "the operator's reboot command" in ended.stderr
    assert "notify: started to http://127.0.0.1:9: " in ended.stderr
    for text in (ended.stdout, ended.stderr):
        assert CANARY not in text
        assert token not in text
