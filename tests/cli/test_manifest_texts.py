"""Settings and known_hosts are in the ConfigMap byte for byte, or they are refused."""

from pathlib import Path

import pytest
import yaml

from rollout.errors import ExitCode
from tests.cli.conftest import Command
from tests.cli.test_manifests import IMAGE, KEY, kustomized

HOST = f"10.0.0.1 ssh-ed25519 {KEY}\n"
CARRIED = {
    "umlauts": "# ü€\U0001f600\nwaves.canary = 1\n",
    "a line separator": "# a\u2028b\u2029c\nwaves.canary = 1\n",
    "a byte order mark within": "# a\ufeffb\nwaves.canary = 1\n",
    "ends of lines of Windows": "# a\r\nwaves.canary = 1\r\n",
    "spaces and lines first": "\n\n  waves.canary = 1\n",
    "spaces and lines last": "waves.canary = 1 \t\n\n\n",
    "no end": "waves.canary = 1",
    "tabs": "# a\n\twaves.canary\t=\t1\n",
}
REFUSED = {
    "# a\u0085b\nwaves.canary = 1\n": "1:4 has the character U+0085",
    "waves.canary = 1\n\n# a\u009bb\n": "3:4 has the character U+009B",
    "waves.canary = 1\n# \ufffe": "2:3 has the character U+FFFE",
}


def carried(command: Command, home: Path, settings: str, known_hosts: str) -> dict[str, str]:
    """The ConfigMap's texts, as Python and Go read them; the refusal else."""
    (home / "cluster.toml").write_bytes(settings.encode())
    (home / "hosts").write_bytes(known_hosts.encode())
    ended = command("manifests", *IMAGE, "--known-hosts", "hosts", "--config", "cluster.toml")
    if ended.code:
        assert (ended.code, ended.stdout) == (ExitCode.ERROR, "")
        return {"refused": ended.stderr}
    data, as_go_reads = (
        next(document["data"] for document in documents if document["kind"] == "ConfigMap")
        for documents in (yaml.safe_load_all(ended.stdout), kustomized(home, ended.stdout))
    )
    assert data == as_go_reads
    read: dict[str, str] = data
    return read


@pytest.mark.kubectl
@pytest.mark.parametrize("settings", CARRIED.values(), ids=CARRIED)
def test_a_text_comes_through_byte_for_byte(settings: str, command: Command, home: Path) -> None:
    known_hosts = HOST + settings.replace("waves.canary", "# ")
    data = carried(command, home, settings, known_hosts)
    assert data == {"rollout.toml": settings, "known_hosts": known_hosts}


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_what_cannot_be_carried_is_refused_by_line_and_character(
    text: str, why: str, command: Command, home: Path
) -> None:
    assert f"cluster.toml:{why}, which" in carried(command, home, text, HOST)["refused"]
    assert f"hosts:{why}, which" in carried(command, home, "", text.replace("waves.canary = 1", HOST[:-1]))["refused"]


@pytest.mark.parametrize(("character", "named"), [("\x7f", "U+007F"), ("\r", "U+000D"), ("\x1b", "U+001B")])
def test_known_hosts_are_no_toml_that_would_refuse_the_rest(
    character: str, named: str, command: Command, home: Path
) -> None:
    said = carried(command, home, "", f"{HOST}# a{character}b\n")["refused"]
    assert f"hosts:2:4 has the character {named}" in said
