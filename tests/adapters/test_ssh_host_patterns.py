"""ssh is asked once about hosts that a configuration cannot tell apart, and it makes no difference."""

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rollout.adapters.programs import run_program
from rollout.adapters.ssh.config import with_ssh_config
from rollout.adapters.ssh.host_patterns import host_patterns
from rollout.adapters.ssh.openssh import NOBODY, Client
from rollout.errors import InputError
from rollout.model.host import Host

HOSTS = {
    name: Host(name, address, port=0, user=user)
    for name, address, user in (
        ("worker-1", "10.0.0.1", ""),
        ("worker-2", "10.0.0.2", "me"),
        ("worker-10", "10.0.0.10", ""),
        ("node-1", "fd00::1", ""),
        ("node-2", "fd00::0:2", ""),
        ("Upper", "10.1", ""),
        ("x", "192.0.2.7", ""),
    )
}
BLOCKS = (
    *("Host *", "Host worker-*", "Host worker-1", "Host !worker-2 *", "Host WORKER-?"),
    *('Host "worker-*"', "Host 10.0.*", "Host fd00::*", "Host=node-?", "Host 10.0.0.1 node-1"),
    *('Host we"l*" x', "Host worker-1*  # worker-2", "Host no.such.*", "Host 10.0.0.1,10.0.0.2"),
    *("Match host worker-*", "Match originalhost worker-1,worker-2", "Match !host *-1"),
    *("Match all", "Match final", "Match user me", "Match user core host=10.*"),
    *("Match host 192.0.2.*", 'Match originalhost "node-1"', "Match exec true"),
    *('Match exec "test %h = worker-1"', "Match final host *.example", "Match localuser nobody"),
)
OPTIONS = (
    *("Port 2222", "Port 2200", "User admin", "HostName 192.0.2.1", "HostName %h.example"),
    *("HostName worker-1", "HostName 10.1", "ProxyJump bastion", "ProxyJump worker-2:22"),
    *("ProxyCommand nc %h %p", "ProxyCommand nc %k", "IdentityFile /k/%h", "IdentityFile /k/%C"),
    *("UserKnownHostsFile /known/%h", "UserKnownHostsFile /known", "HostKeyAlias node"),
    *("IdentityAgent /agent/%n", "ControlPath /c/%C", "ConnectTimeout 7", "AddressFamily inet6"),
    *("# Host worker-*", "CanonicalizeHostname no", "LocalCommand echo %h", "Include {more}"),
    "KnownHostsCommand /bin/echo %H",
)
# Most configurations have no line after which each host is asked about.
SHARED_BLOCKS, SHARED_OPTIONS = (
    [line for line in lines if host_patterns([line]) is not None] for lines in (BLOCKS, OPTIONS)
)
BLOCK = st.tuples(st.sampled_from(SHARED_BLOCKS), st.sampled_from(SHARED_OPTIONS))
LINES = st.builds(
    lambda blocks, others: [*chain.from_iterable(blocks), *others],
    st.lists(BLOCK, max_size=4),
    st.just([]) | st.just([]) | st.lists(st.sampled_from((*BLOCKS, *OPTIONS)), max_size=2),
)


def answers(text: str, folder: Path) -> Mapping[str, Host] | str:
    """What the configuration sets for each host, or why it cannot be used."""
    path = folder / "config"
    path.write_text(text)
    try:
        return with_ssh_config(HOSTS, path)
    except InputError as error:
        return str(error)


@settings(max_examples=8, deadline=None)
@given(LINES, LINES)
@example(["Host worker-*", "Include {more}"], ["Host *-1", "Port 2222"])
@example(["HostName 10.0.0.10", "User admin"], [])
@example(["Host worker-1", "Port 2222"], [])
@example(["HostName 10.1", "Match host 10.*", "User admin"], [])
@example(["Match final host *.example", "Port 2222", "Host *", "HostName %h.example"], [])
def test_each_host_gets_the_answer_that_ssh_has_for_it(
    lines: Sequence[str], more: Sequence[str]
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        included = folder / "more"
        included.write_text("\n".join(line for line in more if "{more}" not in line))
        text = "\n".join(lines).replace("{more}", str(included))
        shared = answers(text, folder)
        patch.setattr(Client, "learn_patterns", lambda *_: None)
        assert shared == answers(text, folder)


def processes(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many processes 500 hosts take."""
    started = list[str]()

    def counted(words: Sequence[str], **rest: Any) -> Any:
        started.append(words[-1])
        return run_program(words, **rest)

    monkeypatch.setattr("rollout.adapters.ssh.openssh.run_program", counted)
    path = tmp_path / "config"
    path.write_text(text)
    hosts = {
        f"worker-{number}": Host(
            f"worker-{number}", f"10.0.{number // 250}.{number % 250}", port=0, user=""
        )
        for number in range(500)
    }
    with_ssh_config(hosts, path)
    return len(started)


def test_hosts_that_are_alike_share_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "more").write_text("Host 10.0.1.*\n  Port 2222\n")
    usual = (
        "Include /etc/ssh/ssh_config.d/*.conf\nHost *\n  HashKnownHosts yes\n  SendEnv LANG LC_*\n"
    )
    assert processes(usual, tmp_path, monkeypatch) == 3
    assert processes(f"{usual}Host worker-7\n  Port 22\n", tmp_path, monkeypatch) == 4
    assert processes(f"Include {tmp_path}/more\n{usual}", tmp_path, monkeypatch) == 4


@pytest.mark.parametrize(
    "line",
    [
        *("Match exec true", "Match new-criterion x", "CanonicalizeHostname yes"),
        "CanonicalDomains example",
        "HostName %h.example",
        "Include ~/%h",
        "HostName 10.1",
        "Host a\\*",
        *("Host 'a*'", '"Host" a*', "=Host a*", "Host", 'Match host "a*,b c"', "Tag %n"),
    ],
)
def test_every_host_is_asked_about_after_a_line_that_may_tell_them_apart(line: str) -> None:
    assert host_patterns(["Host *\n", f"User me\n{line}\n"]) is None


@pytest.mark.parametrize("name", ["10.1", "010.0.0.1", "0x7f.1", "fd00::0:1", "::1", "Node", "a:"])
def test_names_that_ssh_rewrites_are_asked_about_alone(name: str) -> None:
    patterns = host_patterns(["Host *\n  Port 22\n"])
    assert patterns is not None
    assert patterns.kind_of(name) == name
    assert patterns.kind_of("worker-1") == patterns.kind_of("10.0.0.1") == patterns.kind_of(NOBODY)


def test_an_address_with_a_zone_gets_its_own_answer(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("Host fe80::1%lo\n  User zoned\n  Port 2200\n")
    hosts = {
        name: Host(name, address, port=0, user="")
        for name, address in (("node-1", "fe80::2"), ("node-2", "fe80::1%lo"))
    }
    found = with_ssh_config(hosts, path)
    assert (found["node-2"].user, found["node-2"].port) == ("zoned", 2200)
    assert found["node-1"].user != "zoned"
