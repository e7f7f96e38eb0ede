"""Two replicas behind one address, while all that changes in the life of a Deployment changes under them.

Their certificates are renewed as the kubelet renews a Secret's files, the token of their account as it renews that, and
the one that drains is ended in the middle of it.
"""

import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pytest
import yaml

from rollout.lab.lab import Lab
from tests.conftest import StartLab
from tests.server.balancing import balanced
from tests.server.certificates import new_certificate
from tests.server.conftest import holder_of, marks_of
from tests.server.serving import Server, await_true, left_on, reboot, serving

pytestmark = pytest.mark.exhaustive

SECONDS = 480
QUICK = ("--slots", "1", "--max-unavailable", "1", "--set", "lock.duration=3s", "--set", "waves.health-checks=1")
# What a host may meet between two answers: its connection was accepted by a replica that has ended since.
_CUT_OFF = (OSError, HTTPException)


@dataclass
class Secret:
    """A folder as a kubelet mounts a Secret: all files change at once, by one link."""

    folder: Path
    context: ssl.SSLContext
    version: int = 0

    def renew(self) -> Path:
        """New files in place of the old; the new certificate."""
        self.version += 1
        content = self.folder / f"..{self.version}"
        content.mkdir(parents=True)
        # of several of one name OpenSSL would take the first
        certificate, _ = new_certificate(content, f"{self.folder.name}-{self.version}")
        # hosts have trusted the authority of all of them before
        self.context.load_verify_locations(certificate)
        link = self.folder / "..next"
        link.symlink_to(content.name)
        link.replace(self.folder / "..data")
        return certificate

    def flags(self) -> tuple[str, ...]:
        for name in ("tls.crt", "tls.key"):
            (self.folder / name).symlink_to(f"..data/{name}")
        return ("--tls-cert", str(self.folder / "tls.crt"), "--tls-key", str(self.folder / "tls.key"))


@dataclass
class Account:
    """A kubeconfig that names a file with a token, which the lab takes until another is given out."""

    lab: Lab
    folder: Path

    def kubeconfig(self) -> Path:
        document = yaml.safe_load(self.lab.kubeconfig.read_text())
        (user,) = document["users"]
        self.token = user["user"].pop("token")
        user["user"]["tokenFile"] = str(self.folder / "token")
        (self.folder / "token").write_text(self.token)
        path = self.folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    def rotate(self) -> None:
        """The old one is of no more use, and the file has the new one a moment later."""
        fresh = f"{self.token}-next"

        def change() -> None:
            tokens = self.lab.api.access._tokens
            tokens[fresh] = tokens.pop(self.token)

        self.lab.call(change)
        time.sleep(1)
        (self.folder / "token").write_text(fresh)
        self.token = fresh


@dataclass
class Hosts:
    """Hosts that ask one address until each has been through."""

    address: Server
    through: dict[str, int] = field(default_factory=dict)
    wrongs: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def live(self, node: str) -> None:
        if self._until(lambda: self._is_granted(node)):
            reboot(self.address.lab, node)
            if self._until(lambda: self.address.steady_state(node).granted):
                self.through[node] = self.through.get(node, 0) + 1

    def _is_granted(self, node: str) -> bool:
        granted = self.address.pre_reboot(node).granted
        if granted and (pods := left_on(self.address.lab, node)):
            self.wrongs.append(f"{node} was granted with {pods}")
        return granted

    def _until(self, asked: Callable[[], bool]) -> bool:
        while not self.over.wait(0.4):
            with contextlib.suppress(*_CUT_OFF):
                if asked():
                    return True
        return False


def served(server: Server) -> list[str]:
    """The certificate that new connections get."""
    return ssl.get_server_certificate(("127.0.0.1", server.port)).split()


def draining(lab: Lab) -> bool:
    return any(marks_of(lab, name).get("phase") == "draining" for name in lab.machines)


@pytest.mark.timeout(SECONDS + 60)
def test_each_host_goes_through_once_whatever_is_renewed_or_ended(start_lab: StartLab, tmp_path: Path) -> None:
    lab = start_lab("default", nodes=7, speed=30)
    context = ssl.create_default_context()
    secrets = [Secret(tmp_path / f"tls-{number}", context) for number in (1, 2)]
    account = Account(lab, tmp_path)
    kubeconfig = ("--kubeconfig", str(account.kubeconfig()))
    for secret in secrets:
        secret.renew()
    flags = [(*QUICK, *kubeconfig, *secret.flags()) for secret in secrets]
    workers = sorted(name for name in lab.machines if name.startswith("worker"))
    with (
        serving(lab, tmp_path, *flags[0], context=context) as one,
        serving(lab, tmp_path, *flags[1], context=context) as two,
        balanced([one.port, two.port]) as port,
    ):
        hosts = Hosts(Server(lab, tmp_path, (), port, context))
        threads = [threading.Thread(target=hosts.live, args=(name,)) for name in workers]
        for thread in threads:
            thread.start()
        try:
            await_true(lambda: draining(lab), "a drain has begun")
            leading = one if holder_of(lab).endswith(f"/{one.life.process.pid}") else two  # type: ignore[union-attr]
            assert leading.end() == 0
            leading.begin()
            account.rotate()
            fresh = [secret.renew().read_text().split() for secret in secrets]
            await_true(lambda: [served(server) for server in (one, two)] == fresh, "the new certificates are served")
            await_true(lambda: draining(lab) or len(hosts.through) == len(workers), "a drain has begun")
            other = two if leading is one else one
            assert other.end() == 0
            other.begin()
            await_true(lambda: len(hosts.through) == len(workers), "all are through", seconds=SECONDS)
        finally:
            hosts.over.set()
            for thread in threads:
                thread.join()
    score = lab.scoreboard()
    assert hosts.wrongs == []
    assert hosts.through == dict.fromkeys(workers, 1)
    assert {name: score.reboots[name] for name in workers} == dict.fromkeys(workers, 1)
    assert (score.killed, score.budgets_broken, score.rebooted_undrained) == ((), (), ())
    assert (score.cordons_left, score.annotations_left, score.most_unavailable) == ((), {}, 1)
