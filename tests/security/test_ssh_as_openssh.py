"""SSH leads where `ssh` leads: to the same machine, by the same way, as the same user, trusting the same keys.

A configuration that is understood in another way than OpenSSH understands it takes a plan to
another machine, or has it trust a key that its operator does not trust. So OpenSSH's own client is
asked what its configuration means, keys on file count as they count for it, and what comes from the
cluster never becomes an option, or a word of a command, of anything that is run here.
"""

import getpass
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout.adapters.ssh.shell import ParamikoShell
from rollout.errors import HostKeyError
from rollout.lab.api.resources import NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model.host import HostKeyChecking
from tests.adapters.openssh import MISSING, Sshd, certify, is_here, keygen, new_key, public, sshd
from tests.ended import Ended, invoked

pytestmark = pytest.mark.sample(4)

needs_openssh = pytest.mark.skipif(not is_here(), reason=MISSING)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    scenario = Path(__file__).parents[1] / "cli" / "tiny.yaml"
    with Lab(
        scale(load_scenario(str(scenario)), 4), directory=tmp_path_factory.mktemp("lab")
    ) as started:
        yield started


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    return tmp_path / "home"


def status(
    lab: Lab, home: Path, *flags: str, without: tuple[str, ...] = (), **variables: str
) -> Ended:
    """The real program, which goes by ~/.ssh/config; `without` are variables of the lab's that it
    does not see.
    """
    hidden = ("ROLLOUT_SSH_CONFIG", *without)
    told = {
        name: value for name, value in lab.environment.items() if name not in hidden
    } | variables
    return invoked(home, told, ("status", "-o", "json", *flags))


def errors(ended: Ended) -> dict[str, str]:
    """What keeps each node from answering; empty where it answers."""
    assert ended.stdout, ended.stderr
    return {row["node"]: row["error"] for row in json.loads(ended.stdout)["nodes"]}


def write_config(home: Path, text: str) -> None:
    (home / ".ssh" / "config").write_text(text)


@needs_openssh
def test_own_configuration_is_followed_and_told_otherwise(lab: Lab, home: Path) -> None:
    write_config(
        home,
        "Host *\n  User somebody\nHost elsewhere\n  BindAddress 10.0.0.1\nMatch host x exec true\n",
    )
    (followed,) = set(errors(status(lab, home)).values())
    assert followed.startswith("the host refuses user somebody with key SHA256:")
    for way_out in (("--ssh-config", "none"), ("--ssh-user", "core")):
        assert set(errors(status(lab, home, *way_out)).values()) == {""}
    write_config(home, "Host *\n  BindAddress 10.0.0.1\n")
    refused = status(lab, home).ends(1)
    assert "sets bindaddress for" in refused.stderr
    assert "--ssh-config FILE, or no configuration" in refused.stderr


@needs_openssh
def test_only_selected_hosts_are_asked_about(lab: Lab, home: Path) -> None:
    """A configuration that cannot be followed for a host that nobody asked for stands in nobody's
    way.
    """
    write_config(
        home,
        f'Match exec "echo %n >> {home}/asked"\n  User core\nMatch host worker-2\n  BindAddress'
        " ::1\n",
    )
    for options in (
        ("--node", "worker-1"),
        ("--exclude", "worker-2", "--node", "worker-1,worker-2"),
    ):
        (home / "asked").unlink(missing_ok=True)
        assert set(errors(status(lab, home, *options)).values()) == {""}
        asked = set((home / "asked").read_text().split())
        assert "worker-1" in asked
        assert "worker-2" not in asked
    assert "sets bindaddress for worker-2" in status(lab, home).stderr


AWAY = "ProxyCommand echo taken >&2; false"
# Blocks, and whether ssh takes them for these hosts. Read twice, the first two would be taken: our
# own user is core.
BLOCKS = {
    "Match user core\n  {away}": False,
    "Match host 127.0.0.1 user core\n  {away}\nMatch host 127.0.0.1\n  HostName %h": False,
    "Match originalhost worker-1 user core\n  {away}": False,
    "Match final user nobody-here\n  {away}": False,
    "Match canonical\n  {away}": False,
    "Host worker-[1]\n  {away}": False,
    "Host work?r-[123]\n  {away}": False,
    "Host 127.0.0.[1]\n  {away}": False,
    "Host * !127.*\n  {away}": False,
    "Match exec false\n  {away}": False,
    "Match final\n  {away}": True,
    "Match final all\n  {away}": True,
    'Match exec "test %h = %n"\n  {away}': True,
    "Match user {user}\n  {away}": True,
}


@needs_openssh
@pytest.mark.sample(6)
@pytest.mark.parametrize("block", BLOCKS)
def test_those_ways_are_taken_that_ssh_takes(lab: Lab, home: Path, block: str) -> None:
    write_config(
        home, f"{block.format(away=AWAY, user=getpass.getuser())}\nHost *\n  ConnectTimeout 10\n"
    )
    found = errors(status(lab, home)).values()
    assert all("taken" in error for error in found) if BLOCKS[block] else set(found) == {""}


@needs_openssh
def test_of_no_file_of_the_users_nothing_is_trusted_and_nothing_written_elsewhere(
    lab: Lab, home: Path
) -> None:
    trusted = home / ".ssh" / "known_hosts"
    trusted.write_bytes(lab.known_hosts.read_bytes())
    everybodys = home / "global"
    everybodys.write_text("")
    without = ("ROLLOUT_KNOWN_HOSTS",)
    assert set(errors(status(lab, home, without=without)).values()) == {""}
    write_config(home, f"UserKnownHostsFile none\nGlobalKnownHostsFile {everybodys}\n")
    refused = errors(status(lab, home, without=without))
    assert all("its host key is unknown" in error for error in refused.values())
    accepted = status(lab, home, "--host-key-checking", "accept-new", without=without)
    assert set(errors(accepted).values()) == {""}
    assert everybodys.read_text() == ""
    assert trusted.read_bytes() == lab.known_hosts.read_bytes()


@needs_openssh
def test_a_key_without_a_port_speaks_for_every_port(lab: Lab, home: Path) -> None:
    known = home / ".ssh" / "known_hosts"
    lines = {
        line.replace(f"]:{lab.ssh_port}", "").lstrip("[")
        for line in lab.known_hosts.read_text().splitlines()
    }
    assert lab.ssh_port is not None
    assert not any(f":{lab.ssh_port} " in line for line in lines)
    known.write_text("".join(f"{line}\n" for line in sorted(lines)))
    assert set(errors(status(lab, home, without=("ROLLOUT_KNOWN_HOSTS",))).values()) == {""}


ODD = [
    "-oProxyCommand=touch {folder}/ran",
    "$(touch {folder}/ran)",
    "a;touch {folder}/ran",
    "127.0.0.1 -p 22",
    "a\nb",
]


@needs_openssh
@pytest.mark.parametrize("address", ODD)
def test_an_address_that_a_node_makes_up_runs_nothing_and_stops_nobody_else(
    tmp_path: Path, home: Path, address: str
) -> None:
    scenario = load_scenario(str(Path(__file__).parents[1] / "cli" / "tiny.yaml"))
    with Lab(scale(scenario, 4), directory=tmp_path / "lab") as lab:

        def lie() -> None:
            (node,) = (
                node for node in lab.store.items(NODES) if node["metadata"]["name"] == "worker-1"
            )
            told = {
                **node,
                "status": {
                    **node["status"],
                    "addresses": [{"type": "InternalIP", "address": made_up}],
                },
            }
            lab.store.put(NODES, told)

        made_up = address.format(folder=tmp_path)
        lab.call(lie)
        write_config(
            home,
            'Match exec "true %h %n"\n  ConnectTimeout 10\nMatch originalhost nobody\n  User'
            " nobody\n",
        )
        answers = errors(status(lab, home))
    assert "no address is known for it" in answers.pop("worker-1")
    assert set(answers.values()) == {""}
    assert not (tmp_path / "ran").exists()


# Keys on file against OpenSSH's own client and server. HOST is [address]:port, PLAIN the address
# alone.

KEYS_ON_FILE = {
    "for the port": ["HOST {right}"],
    "for no port": ["PLAIN {right}"],
    "for no port, by pattern": ["127.0.0.? {right}"],
    "for no port, among others": ["other,PLAIN {right}"],
    "another for the port": ["HOST {wrong}", "PLAIN {right}"],
    "another for no port": ["PLAIN {wrong}"],
    "another for no port, but for the port": ["PLAIN {wrong}", "HOST {right}"],
    "of another type for the port": ["HOST {other}", "PLAIN {right}"],
    "of another type for no port": ["PLAIN {other}"],
    "for another port": ["[127.0.0.1]:1 {right}"],
    "for another address": ["127.0.0.2 {right}"],
    "brackets are no class": ["127.0.0.[1] {right}"],
    "for no port, but not for this one": ["!HOST,127.* {right}"],
    "for no port, but not for this address": ["!PLAIN,127.* {right}"],
    "revoked for no port": ["@revoked PLAIN {right}", "HOST {right}"],
    "revoked": ["@revoked * {right}", "PLAIN {right}"],
    "none": [],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Path]]:
    folder = tmp_path_factory.mktemp("server")
    key = new_key(folder / "id")
    with sshd(folder / "sshd", f"AuthorizedKeysFile {key}.pub") as started:
        yield started, key


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("strangers")
    return {
        "wrong": public(new_key(folder / "wrong")),
        "other": public(new_key(folder / "other", "ecdsa")),
    }


@needs_openssh
@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("checking", [HostKeyChecking.STRICT, HostKeyChecking.ACCEPT_NEW])
@pytest.mark.parametrize("lines", KEYS_ON_FILE.values(), ids=KEYS_ON_FILE)
def test_keys_on_file_count_as_for_ssh(
    server: tuple[Sshd, Path],
    strangers: dict[str, str],
    lines: list[str],
    checking: HostKeyChecking,
    *,
    hashed: bool,
) -> None:
    known = on_file(
        server[0],
        [line.format(right=public(server[0].host_keys[0]), **strangers) for line in lines],
    )
    if hashed:
        keygen("-H", "-f", known)
    before = known.read_text()
    trusts = ssh_trusts(server, known, checking)
    written = known.read_text()
    known.write_text(before)
    # OpenSSH looks for a revoked key among those of this name; here it is refused from any.
    is_stricter = any("@revoked" in line for line in lines)
    assert we_trust(server, known, checking) in {trusts, trusts and not is_stricter}
    assert len(known.read_text().splitlines()) == len(written.splitlines()) or is_stricter


def on_file(server: Sshd, lines: list[str]) -> Path:
    path = server.folder / "known_hosts"
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(
        text.replace("HOST", f"[127.0.0.1]:{server.port}").replace("PLAIN", "127.0.0.1")
    )
    return path


def ssh_trusts(server: tuple[Sshd, Path], known: Path, checking: HostKeyChecking) -> bool:
    """Whether OpenSSH's own client logs in."""
    strict = "yes" if checking is HostKeyChecking.STRICT else "accept-new"
    files = ("-o", f"UserKnownHostsFile={known}", "-o", "GlobalKnownHostsFile=none")
    asked = (
        *("-F", "none", "-o", f"StrictHostKeyChecking={strict}", "-o", "UpdateHostKeys=no"),
        *("-o", "BatchMode=yes"),
    )
    where = ("-i", str(server[1]), "-p", str(server[0].port), "127.0.0.1", "true")
    return (
        subprocess.run(["ssh", *asked, *files, *where], capture_output=True, check=False).returncode
        == 0
    )


def we_trust(server: tuple[Sshd, Path], known: Path, checking: HostKeyChecking) -> bool:
    shell = ParamikoShell(known_hosts=known, host_key_checking=checking, key_file=server[1])
    try:
        shell.run(server[0].host(), "true", timeout=30)
    except HostKeyError:
        return False
    return True


AUTHORITIES = {
    "for the port": ["@cert-authority HOST {ca}"],
    "for no port": ["@cert-authority PLAIN {ca}"],
    "for a pattern": ["@cert-authority other,[127.0.0.*]:* {ca}"],
    "beside a key for the port": ["HOST {wrong}", "@cert-authority PLAIN {ca}"],
}


@needs_openssh
@pytest.mark.parametrize("checking", [HostKeyChecking.STRICT, HostKeyChecking.ACCEPT_NEW])
@pytest.mark.parametrize("lines", AUTHORITIES.values(), ids=AUTHORITIES)
def test_a_host_that_an_authority_alone_speaks_for_is_refused(
    tmp_path: Path, strangers: dict[str, str], lines: list[str], checking: HostKeyChecking
) -> None:
    """OpenSSH trusts its certificate, which is not looked at here: its key is neither trusted nor
    written down.
    """
    authority, host_key, key = (new_key(tmp_path / name) for name in ("ca", "host", "id"))
    certificate = certify(authority, host_key, "-h", "-n", "127.0.0.1")
    options = (f"AuthorizedKeysFile {key}.pub", f"HostCertificate {certificate}")
    with sshd(tmp_path / "sshd", *options, host_keys=(host_key,)) as started:
        server = started, key
        known = on_file(started, [line.format(ca=public(authority), **strangers) for line in lines])
        before = known.read_text()
        assert ssh_trusts(server, known, HostKeyChecking.STRICT)
        assert not we_trust(server, known, checking)
        assert known.read_text() == before
        known.write_text(f"{before}127.0.0.1 {public(host_key)}\n")
        assert we_trust(server, known, checking) is not any(
            "HOST {wrong}" in line for line in lines
        )
