import getpass
from pathlib import Path

import pytest

from rollout.adapters.input_files import Trust
from rollout.adapters.ssh.config import ConfigFiles, config_files, with_ssh_config
from rollout.errors import InputError
from rollout.model.host import Host, HostKeyFiles, Identities
from tests.waiting import is_running, wait_until

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
    told = Host(
        "a", "10.0.0.1", 22022, "core2", "/keys/own", identities=Identities(("/keys/nodes",))
    )
    assert configured(told, tmp_path) == told
    # also where it is the usual
    found = configured(Host("a", "10.0.0.1", 22, "core"), tmp_path)
    assert found.user == "core"
    assert found.port == 22


@pytest.mark.parametrize(
    ("jump", "arguments"),
    [
        ("b", ("-W", "[far]:22", "--", "b")),
        ("me@a:2200,b", ("-J", "me@a:2200", "-W", "[far]:22", "--", "b")),
        ("me@[::1]:22", ("-W", "[far]:22", "-l", "me", "-p", "22", "--", "::1")),
        ("me@there@10.0.0.9", ("-W", "[far]:22", "-l", "me@there", "--", "10.0.0.9")),
        ("ssh://b:7", ("-W", "[far]:22", "-p", "7", "--", "b")),
    ],
)
def test_jump_hosts_are_left_to_openssh(
    tmp_path: Path, jump: str, arguments: tuple[str, ...]
) -> None:
    text = f"Host far\n  User admin\n  ProxyJump {jump}\n"
    config = str(tmp_path / "config")
    command = ("ssh", "-F", config, "-o", "BatchMode=yes", *arguments)
    assert configured(untold("a", "far"), tmp_path, text).proxy == command


def test_the_rest_that_is_followed(tmp_path: Path, home: Path) -> None:
    text = (
        "Host *\n  HostKeyAlias node\n  UserKnownHostsFile /etc/a /etc/b\n  GlobalKnownHostsFile"
        " ~/c\n"
    )
    found = configured(untold("a", "10.0.0.1"), tmp_path, f"{text}  ConnectTimeout 7\n")
    assert found.known_as == "node"
    assert found.known_hosts == HostKeyFiles(("/etc/a", "/etc/b"), (f"{home}/c",))
    assert found.connect_timeout == 7


def test_what_one_logs_in_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_AGENT", "/run/other")
    text = "Host *\n  IdentityFile /a\n  IdentityFile /b\n  IdentitiesOnly yes\n"
    found = configured(
        untold("a", "10.0.0.1"), tmp_path, f"{text}  IdentityAgent $OTHER_AGENT\n"
    ).identities
    assert found == Identities(("/a", "/b"), "/run/other", only=True)
    for value, agent in (("none", ""), ("SSH_AUTH_SOCK", None), ("/run/agent", "/run/agent")):
        found = configured(untold("a", "10.0.0.1"), tmp_path, f"IdentityAgent {value}\n").identities
        assert found == Identities(agent=agent)


REFUSED = [
    "CertificateFile /c",
    "PKCS11Provider /a",
    "BindAddress 10.0.0.1",
    "ProxyUseFdpass yes",
    "KnownHostsCommand /a",
    "RevokedHostKeys /a",
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / "config").touch()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.mark.parametrize(
    ("line", "why"),
    [("IdentityFile /a/%L", "%L in '/a/%L'"), ("IdentityFile ${KEYS}/a", "the variable in")],
)
def test_what_stands_for_something_else_is_refused_by_name(
    tmp_path: Path, line: str, why: str
) -> None:
    with pytest.raises(InputError, match=f"for a: {why}") as caught:
        configured(untold("a", "10.0.0.1"), tmp_path, f"Host *\n  {line}\n")
    assert "--executor ansible" in caught.value.hint


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path, home: Path, line: str) -> None:
    with pytest.raises(
        InputError, match=f"sets {line.split(maxsplit=1)[0].lower()} for a"
    ) as caught:
        configured(untold("a", "10.0.0.1"), tmp_path, f"Host 10.0.0.1\n  {line}\n")
    assert "--ssh-config" in caught.value.hint
    assert configured(untold("a", "10.0.0.2"), tmp_path, f"Host 10.0.0.1\n  {line}\n") == Host(
        "a", "10.0.0.2"
    )


@pytest.mark.parametrize(
    "condition", ["exec true", 'host 10.0.* exec "test %h = 10.0.0.1"', "exec true !host other"]
)
def test_the_operators_own_commands_decide_where_they_are_asked(
    tmp_path: Path, condition: str
) -> None:
    text = f"Match {condition}\n  User admin\nMatch exec false\n  Port 2222\n"
    assert configured(untold("a", "10.0.0.1"), tmp_path, text) == Host(
        "a", "10.0.0.1", user="admin"
    )


def test_an_address_that_begins_with_a_colon_is_reached_through_a_command(tmp_path: Path) -> None:
    found = configured(untold("a", "::1"), tmp_path, "Host ::1\n  ProxyCommand nc %h %p\n")
    assert found.proxy == ("/bin/sh", "-c", "exec nc ::1 22")


def test_a_wrong_option_is_named_whatever_commands_of_the_configuration_print(
    tmp_path: Path,
) -> None:
    noise = 'Match exec "for n in 1 2 3 4; do echo notice >&2; done"\n  User admin\n'
    with pytest.raises(InputError, match=r"config: line 3: Bad configuration option: foobar$"):
        configured(untold("a", "10.0.0.1"), tmp_path, f"{noise}FooBar yes\n")


def test_a_command_that_has_no_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.adapters.ssh.openssh._SECONDS", 0.5)
    text = f'Match exec "echo $$ > {tmp_path}/pid; sleep 60"\n  User admin\n'
    with pytest.raises(InputError, match=r"ssh -G \S+ did not respond within 0.5 s"):
        configured(untold("a", "10.0.0.1"), tmp_path, text)
    wait_until(lambda: not is_running(int((tmp_path / "pid").read_text())))


def test_commands_of_a_configuration_are_not_given_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_SSH_KEY_PASSPHRASE", "a secret")
    monkeypatch.setenv("ROLLOUT_PROMETHEUS_TOKEN", "a secret")
    configured(
        untold("a", "10.0.0.1"), tmp_path, f'Match exec "env > {tmp_path}/seen"\n  User admin\n'
    )
    assert "a secret" not in (tmp_path / "seen").read_text()


def test_a_block_of_the_nodes_name_goes_before_its_address(tmp_path: Path) -> None:
    text = (
        "Host worker-*\n  Port 2222\nHost worker-2\n  HostName 192.0.2.2\nHost 10.0.0.?\n  Port"
        " 22\n  User admin\n"
    )
    assert configured(untold("worker-1", "10.0.0.1"), tmp_path, text) == Host(
        "worker-1", "10.0.0.1", 2222
    )
    assert configured(untold("worker-2", "10.0.0.2"), tmp_path, text) == Host(
        "worker-2", "192.0.2.2", 2222
    )
    assert configured(untold("other", "10.0.0.3"), tmp_path, text) == Host(
        "other", "10.0.0.3", 22, "admin"
    )


def test_an_address_of_the_inventory_goes_before_the_block_of_the_nodes_name(
    tmp_path: Path,
) -> None:
    """A block for the address itself is followed, as by Ansible's ssh."""
    path = tmp_path / "config"
    path.write_text(
        "Host worker-1 bare\n  HostName 192.0.2.1\n  Port 2222\n  ProxyCommand nc %h %p\n"
        "Host alias\n  HostName 192.0.2.9\n"
    )
    given = [untold("worker-1", "10.0.0.1"), untold("bare", "bare"), untold("worker-3", "alias")]
    found = with_ssh_config({host.name: host for host in given}, path, from_inventory=True)
    assert [host.address for host in found.values()] == ["10.0.0.1", "192.0.2.1", "192.0.2.9"]
    assert found["worker-1"].port == 2222
    assert found["worker-1"].proxy[-1] == "exec nc 10.0.0.1 2222"


@pytest.mark.parametrize(
    "address", ["-oProxyCommand=touch", "a;b", "$(id)", "a b", "a\nb", "u@a", "ssh://a", "[a]"]
)
@pytest.mark.parametrize(
    "line", ["ProxyJump a", "ProxyCommand nc %h %p", "Port 2222", "Match exec 'true %h'"]
)
def test_what_is_no_name_of_a_host_is_not_asked_about(
    tmp_path: Path, address: str, line: str
) -> None:
    with pytest.raises(InputError, match="is not a host name"):
        configured(untold("a", address), tmp_path, f"Host *\n  {line}\nUser me\n")


@pytest.mark.parametrize("user", ["-oProxyCommand=touch", "a;b", "$(id)", "a -b", "a\nb", "a\\"])
def test_a_user_that_a_shell_would_run_is_refused(tmp_path: Path, user: str) -> None:
    with pytest.raises(InputError, match="contains characters that are special to a shell"):
        configured(Host("a", "b", 22, user), tmp_path, "Match exec 'true %r'\n  User me\n")


def test_a_proxy_command_is_told_what_counts(tmp_path: Path) -> None:
    text = "Host *\n  User admin\n  ProxyCommand relay %r %h %p\n"
    assert configured(untold("a", "b"), tmp_path, text).proxy[-1] == "exec relay admin b 22"
    assert (
        configured(untold("a", "b"), tmp_path, text.replace("User admin", "")).proxy[-1]
        == "exec relay core b 22"
    )
    assert (
        configured(Host("a", "b", 2222, "me"), tmp_path, text).proxy[-1] == "exec relay me b 2222"
    )


def test_the_default_user_is_told_from_the_local_one_that_is_set(tmp_path: Path) -> None:
    """The client prints the local user for both."""
    local = getpass.getuser()
    text = (
        f"Host bastion\n  User {local}\nHost 10.0.0.2\n  User {local}\nHost 10.0.0.3\n  User"
        " other\n"
    )
    users = [
        configured(untold("a", f"10.0.0.{number}"), tmp_path, text).user for number in (1, 2, 3)
    ]
    assert users == ["core", local, "other"]


def test_each_of_many_has_its_own_answer_and_the_wait_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.adapters.ssh.config._SLOW_FROM", 20)
    path = tmp_path / "config"
    said = list[str]()
    path.write_text("Match originalhost 10.0.0.7 exec true\n  Port 2222\n")
    hosts = {f"n{number}": untold(f"n{number}", f"10.0.0.{number}") for number in range(20)}
    found = with_ssh_config(hosts, path, said.append)
    assert {name for name, host in found.items() if host.port != 22} == {"n7"}
    assert said == [f"ssh evaluates {path} for 20 hosts, which may take seconds"]


def test_the_files_of_the_account_are_those_of_ssh(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = home / ".ssh" / "config"
    system = home / "system"
    own.write_text("Match host x\n")
    system.write_text("User admin\nPort 2222\n")
    monkeypatch.setattr("rollout.adapters.ssh.config._SYSTEM_FILE", system)
    assert config_files(None) == ConfigFiles(own, None, Trust.OWNED)
    monkeypatch.setattr("rollout.adapters.ssh.config._account_home", lambda: home)
    files = config_files(None)
    assert files == ConfigFiles(own, system, Trust.OWNED)
    assert files.arguments == ()
    found = with_ssh_config({"a": untold("a", "10.0.0.1")}, None)["a"]
    assert found.user == "admin"
    assert found.port == 2222


def test_without_a_client_no_configuration_counts_and_it_is_told(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    (home / ".ssh" / "config").write_text("User admin\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = {"a": untold("a", "10.0.0.1")}
    assert with_ssh_config(asked, None, said.append)["a"] == Host("a", "10.0.0.1")
    assert said == [f"{home}/.ssh/config is ignored: OpenSSH's client (ssh) is not installed"]
    with pytest.raises(InputError, match=r"--ssh-config \S+ needs OpenSSH's client"):
        configured(asked["a"], tmp_path)


def test_a_user_that_is_not_in_the_proxy_command_may_have_any_characters(tmp_path: Path) -> None:
    text = "Host *\n  User svc+deploy\n  ProxyJump bastion\n"
    assert configured(untold("a", "b"), tmp_path, text).proxy[-1] == "bastion"
    text = text.replace("ProxyJump bastion", "ProxyCommand relay %r")
    with pytest.raises(InputError, match="cannot be used in a ProxyCommand"):
        configured(untold("a", "b"), tmp_path, text)
