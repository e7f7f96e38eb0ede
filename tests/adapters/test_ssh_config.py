from pathlib import Path

import pytest

from rollout.adapters.ssh.config import with_ssh_config
from rollout.errors import InputError
from rollout.model.host import Host, Identities

CONFIG = """
Host 10.0.0.*
    User admin
    Port 2222
    IdentityFile /keys/nodes
Host node-1
    HostName 192.0.2.1
Host far
    ProxyJump bastion
Host near
    ProxyJump none
"""


def untold(name: str, address: str) -> Host:
    """A host of which nobody has told user or port."""
    return Host(name, address, port=0, user="")


def configured(host: Host, tmp_path: Path, text: str = CONFIG) -> Host:
    path = tmp_path / "config"
    path.write_text(text, encoding="utf-8")
    return with_ssh_config({"node": host}, path)["node"]


def test_what_the_file_says_fills_in_what_nobody_said(tmp_path: Path) -> None:
    assert configured(untold("a", "10.0.0.1"), tmp_path) == Host(
        "a", "10.0.0.1", 2222, "admin", identities=Identities(("/keys/nodes",))
    )


def test_flags_and_inventory_go_before_the_file(tmp_path: Path) -> None:
    told = Host("a", "10.0.0.1", 22022, "core2", "/keys/own", identities=Identities(("/keys/nodes",)))
    assert configured(told, tmp_path) == told


def test_what_is_told_counts_also_where_it_is_the_usual(tmp_path: Path) -> None:
    found = configured(Host("a", "10.0.0.1", 22, "core"), tmp_path)
    assert (found.user, found.port) == ("core", 22)


def test_a_name_leads_to_its_address(tmp_path: Path) -> None:
    assert configured(untold("a", "node-1"), tmp_path).address == "192.0.2.1"


def test_a_host_the_file_does_not_know_stays_as_it_is(tmp_path: Path) -> None:
    assert configured(untold("a", "10.9.9.9"), tmp_path) == Host("a", "10.9.9.9")
    assert configured(untold("a", "near"), tmp_path) == Host("a", "near")


def test_jump_hosts_are_left_to_openssh(tmp_path: Path) -> None:
    text = "Host far\n  User admin\n  ProxyJump me@a:2200,b\n"
    config = str(tmp_path / "config")
    assert configured(untold("a", "far"), tmp_path, text).proxy == (
        *("ssh", "-F", config, "-o", "BatchMode=yes", "-J", "me@a:2200", "-W", "[far]:22", "--", "ssh://b"),
    )


def test_the_rest_that_is_followed(tmp_path: Path) -> None:
    text = "Host *\n  HostKeyAlias node\n  UserKnownHostsFile /etc/a /etc/b\n  ConnectTimeout 7\n"
    found = configured(untold("a", "10.0.0.1"), tmp_path, text)
    assert (found.known_as, found.known_hosts, found.connect_timeout) == (
        "node",
        ("/etc/a", "/etc/b", "/etc/ssh/ssh_known_hosts"),
        7,
    )


def test_what_one_logs_in_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    text = "Host *\n  IdentityFile /a\n  IdentityFile /b\n  CertificateFile /c\n  IdentitiesOnly yes\n"
    found = configured(untold("a", "10.0.0.1"), tmp_path, f"{text}  IdentityAgent $OTHER_AGENT\n").identities
    assert found == Identities(("/a", "/b"), ("/c",), "/run/other", only=True)
    for value, agent in (("none", ""), ("SSH_AUTH_SOCK", None), ("/run/agent", "/run/agent")):
        found = configured(untold("a", "10.0.0.1"), tmp_path, f"IdentityAgent {value}\n").identities
        assert found == Identities(agent=agent)


REFUSED = [
    "PKCS11Provider /a",
    "BindAddress 10.0.0.1",
    "ProxyUseFdpass yes",
    "KnownHostsCommand /a",
    "RevokedHostKeys /a",
    "Include ~/config",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / "config").touch()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, home: Path, line: str) -> None:
    with pytest.raises(InputError, match=f"sets {line.split(maxsplit=1)[0].lower()} for a") as caught:
        configured(untold("a", "10.0.0.1"), tmp_path, f"Host 10.0.0.1\n  {line}\n")
    assert "--ssh-config" in caught.value.hint
    assert configured(untold("a", "10.0.0.2"), tmp_path, f"Host 10.0.0.1\n  {line}\n") == Host("a", "10.0.0.2")


def test_an_include_of_nothing_is_nothing(tmp_path: Path) -> None:
    text = f"Host 10.0.0.1\n  Include {tmp_path}/none/*\n  User admin\n"
    assert configured(untold("a", "10.0.0.1"), tmp_path, text).user == "admin"


CONDITIONS = ["exec true", "host 10.0.* exec true", "exec true !host other", "tagged x", "localnetwork 10.0.0.0/8"]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_that_cannot_be_decided_is_refused_where_it_matters(tmp_path: Path, condition: str) -> None:
    text = f"Match {condition}\n  SetEnv A=b\n  ProxyJump bastion\nHost b\n  User admin\n"
    with pytest.raises(InputError, match="sets proxyjump for a under a Match that cannot be decided") as caught:
        configured(untold("a", "10.0.0.1"), tmp_path, text)
    assert "none" in caught.value.hint
    harmless = text.replace("ProxyJump bastion", "SetEnv C=d")
    assert configured(untold("a", "b"), tmp_path, harmless) == Host("a", "b", user="admin")


def test_no_command_is_run_for_a_condition(tmp_path: Path) -> None:
    text = f"Match exec 'touch {tmp_path}/done'\n  SetEnv A=b\n"
    configured(untold("a", "10.0.0.1"), tmp_path, text)
    assert not (tmp_path / "done").exists()


def test_a_condition_about_other_hosts_is_of_no_account(tmp_path: Path) -> None:
    text = "Match host other exec true\n  User admin\nMatch host 10.0.0.1\n  User me\n"
    assert configured(untold("a", "10.0.0.1"), tmp_path, text).user == "me"


def test_the_operators_own_file_is_the_usual(home: Path) -> None:
    asked = {"a": untold("a", "10.0.0.1")}
    assert with_ssh_config(asked, None)["a"] == Host("a", "10.0.0.1")
    (home / ".ssh" / "config").write_text("User admin\n")
    assert with_ssh_config(asked, None)["a"] == Host("a", "10.0.0.1", user="admin")
    assert with_ssh_config(asked, Path("none"))["a"] == Host("a", "10.0.0.1")


def test_a_block_of_the_nodes_name_goes_before_its_address(tmp_path: Path) -> None:
    text = "Host worker-*\n  Port 2222\nHost worker-2\n  HostName 192.0.2.2\nHost 10.0.0.?\n  Port 22\n  User admin\n"
    assert configured(untold("worker-1", "10.0.0.1"), tmp_path, text) == Host("worker-1", "10.0.0.1", 2222)
    assert configured(untold("worker-2", "10.0.0.2"), tmp_path, text) == Host("worker-2", "192.0.2.2", 2222)
    assert configured(untold("other", "10.0.0.3"), tmp_path, text) == Host("other", "10.0.0.3", 22, "admin")


def test_match_by_host(tmp_path: Path) -> None:
    assert configured(untold("a", "10.0.0.1"), tmp_path, "Match host 10.0.*\n  User admin\n").user == "admin"


def test_included_files_come_first_and_end_with_themselves(tmp_path: Path) -> None:
    (tmp_path / "one.conf").write_text("Host other\n  Port 2200\n")
    (tmp_path / "two.conf").write_text("Host 10.0.0.1\n  Port 2222\n")
    found = configured(untold("a", "10.0.0.1"), tmp_path, f"Include {tmp_path}/*.conf\nUser admin\n")
    assert (found.port, found.user) == (2222, "admin")


def test_files_that_include_each_other(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="include each other"):
        configured(untold("a", "10.0.0.1"), tmp_path, f"Include {tmp_path}/config\n")


@pytest.mark.parametrize("address", ["-oProxyCommand=touch", "a;b", "$(id)", "a b"])
@pytest.mark.parametrize("line", ["ProxyJump a", "ProxyCommand nc %h %p"])
def test_addresses_of_the_cluster_never_become_commands(tmp_path: Path, address: str, line: str) -> None:
    with pytest.raises(InputError, match="may not be part of the command"):
        configured(untold("a", address), tmp_path, f"Host *\n  {line}\n")


def test_numbers(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="port 'ssh' is no number"):
        configured(untold("a", "10.0.0.1"), tmp_path, "Host *\n  Port ssh\n")


def test_a_proxy_command_is_told_what_counts(tmp_path: Path) -> None:
    text = "Host *\n  User admin\n  ProxyCommand relay %r %h %p\n"
    assert configured(untold("a", "b"), tmp_path, text).proxy[-1] == "exec relay admin b 22"
    assert configured(untold("a", "b"), tmp_path, text.replace("User admin", "")).proxy[-1] == "exec relay core b 22"
    assert configured(Host("a", "b", 2222, "me"), tmp_path, text).proxy[-1] == "exec relay me b 2222"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        with_ssh_config({}, tmp_path / "missing")


def test_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an OpenSSH client configuration"):
        configured(untold("a", "b"), tmp_path, 'Host "\n')


def test_comments_at_the_ends_of_lines(tmp_path: Path) -> None:
    text = "Host 10.0.0.1 # node-9\n  Port 2222 # not 22\n  User admin\t# me\n  HostName 192.0.2.9  # moved\n"
    text += "  IdentityFile /keys/#1 # mine\n  IdentityFile \"/keys/a #2\"\n  ProxyCommand relay '#' # %h\n"
    found = configured(untold("node-9", "10.0.0.1"), tmp_path, text)
    assert (found.port, found.user, found.address) == (2222, "admin", "192.0.2.9")
    assert found.identities.files == ("/keys/#1", "/keys/a #2")
    assert found.proxy == ("/bin/sh", "-c", "exec relay '#' # 192.0.2.9")


WAYS = [
    ("ProxyCommand none", "", ""),
    ("ProxyCommand none", "ProxyJump b", ""),
    ("ProxyJump b", "ProxyCommand relay", "ssh://b"),
    ("ProxyCommand relay", "ProxyJump b", "exec relay"),
    ("ProxyJump none", "ProxyCommand relay", "exec relay"),
    ("ProxyJump none", "ProxyJump b", ""),
    ("ProxyJump none", "ProxyCommand none", ""),
]


@pytest.mark.parametrize(("first", "second", "leads"), WAYS)
def test_of_jump_host_and_command_the_first_one_counts(tmp_path: Path, first: str, second: str, leads: str) -> None:
    text = f"Host 10.0.0.1\n  {first}\nHost *\n  {second or 'User me'}\n"
    assert configured(untold("a", "10.0.0.1"), tmp_path, text).proxy[-1:] == ((leads,) if leads else ())


def test_all_certificates(tmp_path: Path) -> None:
    text = 'Host 10.0.0.1\n  CertificateFile /a # first\n  CertificateFile "/b c"\nHost *\n  CertificateFile none\n'
    found = configured(untold("a", "10.0.0.1"), tmp_path, f"{text}  CertificateFile ~/d\n").identities
    assert found == Identities(certificates=("/a", "/b c", str(Path("~/d").expanduser())))


def test_tokens_and_variables(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", "/keys")
    text = "User me\nPort 2222\nHostKeyAlias known\nIdentityFile ${KEYS}/%n\nIdentityFile ~/%r-%p-%%\n"
    text += "CertificateFile %d/%r-cert.pub\nIdentityAgent ${KEYS}/agent\n"
    text += 'UserKnownHostsFile "~/of %h" ${KEYS}/%k\nGlobalKnownHostsFile none\nProxyCommand relay %n ${KEYS} %%\n'
    found = configured(untold("a", "10.0.0.1"), tmp_path, text)
    assert found.identities == Identities(
        ("/keys/10.0.0.1", f"{home}/me-2222-%"), (f"{home}/me-cert.pub",), agent="/keys/agent"
    )
    assert found.known_hosts == (f"{home}/of 10.0.0.1", "/keys/known")
    assert found.proxy == ("/bin/sh", "-c", "exec relay 10.0.0.1 ${KEYS} %")
    monkeypatch.delenv("KEYS")
    with pytest.raises(InputError, match=r"for a: \$\{KEYS\} is not set"):
        configured(untold("a", "10.0.0.1"), tmp_path, text)


@pytest.mark.parametrize(("word", "only"), [("yes", True), ("True", True), ("YES", True), ("no", False), ("f", False)])
def test_switches(tmp_path: Path, word: str, only: bool) -> None:  # noqa: FBT001 - a row of the table
    assert configured(untold("a", "10.0.0.1"), tmp_path, f"IdentitiesOnly {word}\n").identities.only is only


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("1m", 60), ("1M30s", 90), ("1h2", 3602), ("none", None)])
def test_times(tmp_path: Path, text: str, expected: int | None) -> None:
    assert configured(untold("a", "10.0.0.1"), tmp_path, f"ConnectTimeout {text}\n").connect_timeout == expected


@pytest.mark.parametrize("criterion", ["host node-*", "originalhost node-1", "host=other,node-1", "all host 'node-1'"])
def test_a_match_that_names_the_node(tmp_path: Path, criterion: str) -> None:
    text = f"Match {criterion.removeprefix('all ')}\n  Port 2222\n  HostName 192.0.2.7\n"
    found = configured(untold("node-1", "10.0.0.1"), tmp_path, text)
    assert (found.port, found.address) == (2222, "192.0.2.7")
    assert configured(untold("other-1", "10.0.0.1"), tmp_path, text) == Host("other-1", "10.0.0.1")


def test_names_that_openssh_would_complete_are_refused(tmp_path: Path) -> None:
    """Looking a name up to find out which host is meant is not for us; an address needs no completion."""
    text = "CanonicalizeHostname yes\nHost node-1\n  HostName short\nHost node-2\n  HostName a.long.example\n"
    with pytest.raises(InputError, match="sets canonicalizehostname for node-1") as caught:
        configured(untold("node-1", "10.0.0.1"), tmp_path, text)
    assert "--ssh-config" in caught.value.hint
    assert configured(untold("node-2", "10.0.0.1"), tmp_path, text).address == "a.long.example"
    for address in ("10.0.0.1", "2001:db8::1"):
        assert configured(untold("node-3", address), tmp_path, text).address == address
    through = text.replace("HostName short", "HostName short\n  ProxyJump b")
    assert configured(untold("node-1", "10.0.0.1"), tmp_path, through).address == "short"


def test_included_files_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "more of it").write_text("User admin # me\n")
    assert configured(untold("a", "10.0.0.1"), tmp_path, f'Include "{tmp_path}/more of it" # all\n').user == "admin"


@pytest.mark.parametrize("line", ['UserKnownHostsFile "/a', "Match host 'a", 'Include "/a'])
def test_quotes_that_do_not_pair(tmp_path: Path, line: str) -> None:
    with pytest.raises(InputError, match="is not an OpenSSH client configuration"):
        configured(untold("a", "10.0.0.1"), tmp_path, f"{line}\n")
