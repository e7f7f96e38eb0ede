"""One suite for the lab and for any real API server, so that neither can drift from the other.

Without further word the lab is held to it. A real cluster is held to it by

    ROLLOUT_CONTRACT_KUBECONFIG=~/.kube/config pytest tests/contract

with the file's current context and the rights of an administrator; a test cluster, for much is made
there, all of it named `contract-...` and removed at the end. No machine is touched: Nodes are
played, rollouts included, and a taint keeps other pods off them. Servers of 1.20 and later are
fine; what one does not have yet is skipped. Several workers (`-n 2`) may share a server: their
rollouts take turns.

A control plane alone will do, on loopback, with no container runtime and no kubelet. Given its
binaries and, in `pki`, a CA with a certificate of each component, this is all that it takes:

    etcd --data-dir data --unsafe-no-fsync kube-apiserver --etcd-servers http://127.0.0.1:2379
    --bind-address 127.0.0.1 --advertise-address 127.0.0.1 \\ --endpoint-reconciler-type none
    --authorization-mode RBAC --service-cluster-ip-range 10.0.0.0/24 \\ --client-ca-file pki/ca.crt
    --tls-cert-file pki/server.crt --tls-private-key-file pki/server.key \\ --service-account-issuer
    https://kubernetes.default.svc --service-account-key-file pki/sa.pub \\
    --service-account-signing-key-file pki/sa.key kube-controller-manager --kubeconfig
    kcm.kubeconfig --use-service-account-credentials --leader-elect=false \\
    --service-account-private-key-file pki/sa.key --root-ca-file pki/ca.crt kube-scheduler
    --kubeconfig scheduler.kubeconfig --leader-elect=false
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from tests.contract.cluster import Cluster, connected
from tests.contract.played import Played
from tests.contract.programs import SCENARIO

KUBECONFIG = os.environ.get("ROLLOUT_CONTRACT_KUBECONFIG", "")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("contract")
    with ExitStack() as stack:
        kubeconfig = Path(KUBECONFIG).expanduser()
        if not KUBECONFIG:
            lab = Lab(load_scenario("idle"), directory=directory, speed=5)
            kubeconfig = stack.enter_context(lab).kubeconfig
        yield stack.enter_context(connected(kubeconfig, directory))


@pytest.fixture
def cluster(server: Cluster) -> Iterator[Cluster]:
    yield server
    server.clean_up()


@pytest.fixture(scope="module")
def played(server: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    directory = tmp_path_factory.mktemp("played")
    nodes = Played(Cluster(server.kubeconfig, directory), SCENARIO, directory)
    with nodes.running():
        yield nodes


@pytest.fixture
def alone(played: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One rollout at a time on one server, whichever worker of this run it comes from.

    Each has a lock of its own, in a namespace of its own; but what stands on a begun Node is seen
    cluster-wide, and whoever sees the marks of a rollout whose record is not to be found takes no
    node.
    """
    server = hashlib.sha256(played.cluster.url.encode()).hexdigest()[:16]
    with (tmp_path_factory.getbasetemp().parent / f"rollouts-on-{server}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
