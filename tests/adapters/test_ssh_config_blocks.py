"""Where no OpenSSH client is installed: what Host blocks say is what `ssh -G` says, or the file is refused.

And what the program makes of a file, with a client, against that client's own words.
"""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.config_blocks import read_blocks
from rollout.adapters.ssh.config_client import Question, Settings, ask_client
from rollout.adapters.ssh.config_source import source
from rollout.errors import InputError
from rollout.model.host import Host, HostKeyFiles

pytestmark = pytest.mark.skipif(shutil.which("ssh") is None, reason="OpenSSH's client is not installed")

BLOCKS = [
    "User me",
    "User=me",
    "user = me",
    "User 'me'",
    'User "me"',
    'User "m"e',
    "User me # comment",
    "User me#no-comment",
    "User me\nUser you",
    "\tUser\tme\t",
    "Port 2222",
    "Port '2222'",
    "Port 0",
    "Port 65536",
    "Port -1",
    "Port 22x",
    "Host n1\n User me",
    "Host n?\n User me",
    "Host n?de[1]\n User me",
    "Host n[1]\n User me",
    "Host n*\n User me",
    "Host *1 other\n User me",
    "Host 'n1'\n User me",
    'Host "n1"\n User me',
    'Host "n1" # n2\n User me',
    "Host !n1\n User me",
    "Host * !n1\n User me",
    "Host !n2 *\n User me",
    "Host n1,n2\n User me",
    "Host N1\n User me",
    "Host n2\n User me\nHost n1\n User you",
    "Host n1\n Port 1\nHost *\n Port 2",
    "HOST n1\n USER me",
    "Host=n1\n User me",
    "HostName 10.0.0.1",
    "HostName %h.example",
    "HostName %%h",
    "HostName 'a'",
    "HostName 10.0.0.1\nHostName 10.0.0.2",
    "Host n1\n HostName x\nHost x\n User me",
    "ProxyJump a",
    "ProxyJump a,b:22,c@d",
    "ProxyJump none",
    "ProxyJump none\nProxyJump a",
    "ProxyJump none\nProxyCommand relay",
    "ProxyCommand relay %h %p",
    "ProxyCommand relay '%h' # not a comment",
    'ProxyCommand "relay x" %h',
    "ProxyCommand none",
    "ProxyCommand none\nProxyJump a",
    "ProxyCommand relay\nProxyJump a",
    "ProxyJump a\nProxyCommand relay",
    "Host n2\n ProxyJump a\nHost *\n ProxyCommand relay",
    "HostKeyAlias node",
    "HostKeyAlias 'No de'",
    "HostKeyAlias %h",
    "UserKnownHostsFile none",
    "UserKnownHostsFile /a /b",
    "UserKnownHostsFile '/a b' /c",
    'UserKnownHostsFile "/a b" # /c',
    "UserKnownHostsFile /a\\ b",
    "UserKnownHostsFile /k/%h /k/%%h",
    "UserKnownHostsFile /a\nUserKnownHostsFile /b",
    "GlobalKnownHostsFile none",
    "GlobalKnownHostsFile /a /b",
    "UserKnownHostsFile none\nGlobalKnownHostsFile none",
    "IdentityFile /a",
    "IdentityFile '/a b'",
    'IdentityFile "/a \\" b"',
    "IdentityFile /a\nIdentityFile /b\nIdentityFile /a",
    "IdentityFile none",
    "IdentityFile none\nIdentityFile /a",
    "IdentityFile /a/%n-%h-%%-%%h",
    "IdentityFile /a#b",
    "IdentityFile /a #b",
    "CertificateFile /a\nCertificateFile /b",
    "CertificateFile none",
    "IdentitiesOnly yes",
    "IdentitiesOnly true",
    "IdentitiesOnly no",
    "IdentityAgent none",
    "IdentityAgent SSH_AUTH_SOCK",
    "IdentityAgent $NOBODY_SET_THIS",
    "IdentityAgent '/run/a b'",
    "ConnectTimeout 7",
    "ConnectTimeout 1m30",
    "ConnectTimeout 1H",
    "ConnectTimeout none",
    "ConnectTimeout 0",
    "BindAddress 10.0.0.1",
    "RevokedHostKeys /a",
    "RevokedHostKeys none",
    "KnownHostsCommand /a %h",
    "ProxyUseFdpass yes",
    "ProxyUseFdpass no",
    "PKCS11Provider none",
    "Host n2\n BindAddress 10.0.0.1",
    "SendEnv LANG\nUser me",
    "CanonicalizeHostname no\nUser me",
    "# User me\nPort 22",
    "Include /nowhere/*\nUser me",
    "Include 'more'\nUser me",
    "Host n1\nInclude {folder}/more",
    "Include {folder}/more\nUser last",
    "Host n2\nInclude {folder}/more\nHost *\nUser last",
    "Match all\nUser me",
    "Match host n1\nUser me",
    "Match host n[1]\nUser me",
    "Match !host n1\nUser me",
    "Match originalhost n1\nProxyJump a",
    "Match user core\nProxyJump a",
    "Match user nobody\nProxyJump a",
    "Match final\nProxyJump a",
    "Match canonical\nProxyJump a",
    "Match final all\nUser me",
    "Match final host n1\nPort 2222",
    "HostName x\nMatch host x\nProxyJump a",
    "HostName x\nMatch host n1\nProxyJump a",
    "User core\nMatch user core\nProxyJump a",
    "Match user core\nProxyJump a\nHost *\nUser core",
    "Match exec true\nUser me",
    "Match exec false\nUser me",
    "Nonsense x",
    "Port",
    "Host 'n1",
]


def written(folder: Path, text: str) -> Path:
    (folder / "more").write_text("Host n2\n User two\nHost n1\n User one\n")
    path = folder / "config"
    path.write_text(text.replace("{folder}", str(folder)) + "\n")
    return path


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_lead_where_the_client_leads_or_nowhere(tmp_path: Path, text: str) -> None:
    agrees(written(tmp_path, text))


def agrees(path: Path) -> None:
    """Both ways lead to the same host, unless one leads nowhere."""
    question = {"node": Host("n1", "n1", port=0, user="")}
    with suppress(InputError):
        found = [reached(question, path, ask) for ask in (read_blocks, ask_client)]
        assert found[0] == found[1]


def reached(hosts: dict[str, Host], path: Path, ask: object) -> Host:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollout.adapters.ssh.config._answers", ask)
        return with_ssh_config(hosts, path)["node"]


KEYWORDS = [
    "User",
    "Port",
    "HostName",
    "ProxyJump",
    "ProxyCommand",
    "IdentityFile",
    "HostKeyAlias",
    "Host",
    "Match host",
]
VALUE = st.text("na*?[]!'\"\\ %h#,=", min_size=1, max_size=6)
USUAL = st.sampled_from(["n1", "n?", "* !n1", "n[1]", "'n1'", '"n"1', "22", "2222 #", "none", "%h.x", "a#b", "x y"])
LINE = st.tuples(st.sampled_from(KEYWORDS), st.sampled_from([" ", "=", "\t"]), VALUE | USUAL).map("".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINE, min_size=1, max_size=5))
def test_whatever_stands_there_leads_to_one_place_or_nowhere(tmp_path: Path, lines: list[str]) -> None:
    agrees(written(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize("told", [("", 0), ("core", 0), ("", 2022), ("me", 22)])
@pytest.mark.parametrize("text", BLOCKS)
def test_a_host_is_where_the_client_says(tmp_path: Path, text: str, told: tuple[str, int]) -> None:
    path = written(tmp_path, text)
    user, port = told
    said = client("-F", str(path), *(("-l", user) if user else ()), *(("-p", str(port)) if port else ()), "n1")
    try:
        host = with_ssh_config({"node": Host("n1", "n1", port=port, user=user)}, path)["node"]
    except InputError:
        # Refused by the client, or by name.
        assert said is None or any(name in text for name in ("BindAddress", "Revoked", "KnownHostsC", "Fdpass"))
        return
    assert said is not None or not any(word in text for word in ("Port", "HostName", "User", "Jump"))
    if said is None:
        return
    local = client("-F", "none", "n1") or {}
    assert (host.address, host.port) == (said["hostname"], int(said["port"]))
    assert host.user in {said["user"], "core"}
    assert host.user == said["user"] or (said["user"] == local["user"] and not user)
    assert bool(host.proxy) == bool({"proxyjump", "proxycommand"} & set(said))
    assert (host.connect_timeout or 0) == int(said["connecttimeout"].replace("none", "0"))


def client(*arguments: str) -> dict[str, str] | None:
    """Its own words; None where it refuses the file."""
    ended = subprocess.run(["ssh", "-G", "-T", *arguments], capture_output=True, text=True, check=False)
    return (
        dict(line.split(" ", 1) for line in ended.stdout.splitlines() if " " in line) if not ended.returncode else None
    )


REFUSED = ["Match all\nUser me", "Host n2\nInclude {folder}/more", "CanonicalizeHostname yes\nUser me", "Include ~/%h"]


@pytest.mark.parametrize("text", REFUSED)
def test_what_takes_a_client_is_refused_without_one(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, f"{text}\nPort 2222")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=f"{path}:.* needs OpenSSH's client, which is not installed") as caught:
        with_ssh_config({"node": Host("n1", "n1", port=0, user="")}, path)
    assert "openssh-client" in caught.value.hint


def test_what_flags_say_goes_before_blocks(tmp_path: Path) -> None:
    files = source(written(tmp_path, "User me\nPort 2222\nUserKnownHostsFile '/a b' /c\n"))
    question = Question("n1", "core", 22)
    found: Settings = read_blocks([question], files)[question]
    assert (found["user"], found["port"]) == (("core",), ("22",))
    assert found["userknownhostsfile"] == ("/a b", "/c")


def test_files_of_hosts_are_handed_on(tmp_path: Path) -> None:
    path = written(tmp_path, "UserKnownHostsFile none\nGlobalKnownHostsFile '/a b' /c")
    for ask in (read_blocks, ask_client):
        assert reached({"node": Host("n1", "n1")}, path, ask).known_hosts == HostKeyFiles((), ("/a b", "/c"))
