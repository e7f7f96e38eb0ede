"""Nothing listens before the cluster is at rest."""

import asyncio
import random
import resource
import secrets
import shlex
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import asyncssh
from msgspec import Struct

from rollout.errors import InputError, RolloutError, ScenarioError
from rollout.gather.cluster.copying import ClusterCopy
from rollout.lab import credentials
from rollout.lab.api.lifecycle import ensure_namespace, with_defaults
from rollout.lab.api.resources import NODES
from rollout.lab.api.server import ApiServer
from rollout.lab.api.store import ObjectStore
from rollout.lab.clock import LabClock
from rollout.lab.copied import fill, hosts_of, load_copy, refuse_invalid_objects, silent_nodes
from rollout.lab.fleet import Fleet
from rollout.lab.hostplan import HostPlan, plan_hosts
from rollout.lab.hosts.machine import Power
from rollout.lab.hosts.ssh_server import USER
from rollout.lab.listener import bind_hosts, bind_ipv6_hosts
from rollout.lab.manifests import copies_of, workload_objects
from rollout.lab.objects import name_of, uid
from rollout.lab.scenario import Scenario
from rollout.lab.scoreboard import ScoreKeeper
from rollout.lab.world.world import World

# For each host, a listener and a few connections.
_FILES_PER_HOST: Final = 4
_OTHER_FILES: Final = 512


class LabFiles:
    """`key` is the private SSH key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self.inventory = directory / "inventory.yaml"
        self.known_hosts = directory / "known_hosts"
        self.key = directory / "id_ed25519"

    def variables(self, shared_port: int | None) -> dict[str, str]:
        # ssh splits the option at spaces unless it is quoted.
        known_hosts = shlex.quote(f'UserKnownHostsFile="{self.known_hosts}"')
        variables = {
            "KUBECONFIG": str(self.kubeconfig),
            "ROLLOUT_SSH_KEY": str(self.key),
            "ROLLOUT_KNOWN_HOSTS": str(self.known_hosts),
            # The operator's own ssh_config is for real hosts.
            "ROLLOUT_SSH_CONFIG": "none",
            "ANSIBLE_SSH_COMMON_ARGS": f"-o {known_hosts}",
        }
        if shared_port is None:
            variables["ROLLOUT_INVENTORY"] = str(self.inventory)
        else:
            variables["ROLLOUT_SSH_PORT"] = str(shared_port)
        return variables


class Simulation(Struct, frozen=True):
    """Only code in its event loop may read and change it."""

    store: ObjectStore
    world: World
    api: ApiServer
    fleet: Fleet
    keeper: ScoreKeeper
    files: LabFiles


@asynccontextmanager
async def simulation(
    scenario: Scenario, *, directory: Path, speed: float
) -> AsyncIterator[Simulation]:
    copy = load_copy(Path(scenario.like)) if scenario.like else None
    if copy:
        with refuse_invalid_objects(scenario.like):
            plans = hosts_of(copy)
    else:
        plans = plan_hosts(scenario)
    _raise_file_limit(len(plans))
    files = _create_folder(directory)
    clock = LabClock(speed, ahead=scenario.clock_ahead)
    rng = random.Random(scenario.seed)
    client_key = credentials.new_client_key()
    sockets = _sockets(len(plans), ipv6=scenario.ipv6)
    timings = scenario.host_timings
    fleet = Fleet(plans, sockets, clock=clock, rng=rng, timings=timings, authorized=client_key)
    fleet.use_fleetlock(scenario.fleetlock)
    authority = credentials.new_authority(datetime.now(UTC))
    ssl_context = credentials.server_context(authority, directory)
    token = secrets.token_urlsafe(32)
    store = ObjectStore(now=clock.now)
    api = ApiServer(store, clock, token=token, ssl_context=ssl_context)
    api.access.denials.update(scenario.denials)
    world = World(store, clock, timings=scenario.timings, rng=rng)
    try:
        _populate(world, fleet, scenario=scenario, plans=plans, copy=copy)
    except Exception:
        await fleet.close()
        raise
    running = Simulation(
        store=store, world=world, api=api, fleet=fleet, keeper=ScoreKeeper(world), files=files
    )
    async with _serving(running):
        _write_files(running, authority, token, client_key)
        for rule in scenario.api_faults:
            api.faults.add(rule)
        yield running


@asynccontextmanager
async def _serving(running: Simulation) -> AsyncIterator[None]:
    world_task = asyncio.create_task(running.world.run())
    try:
        await running.api.start()
        await running.fleet.start()
        yield
    finally:
        running.world.stop()
        await running.fleet.close()
        await running.api.stop()
        await world_task


def _sockets(hosts: int, *, ipv6: bool) -> list[socket.socket]:
    try:
        return bind_ipv6_hosts(hosts) if ipv6 else bind_hosts(hosts)
    except OSError as error:
        raise RolloutError(f"cannot listen on loopback for {hosts} hosts: {error}") from error


def _populate(
    world: World,
    fleet: Fleet,
    *,
    scenario: Scenario,
    plans: Sequence[HostPlan],
    copy: ClusterCopy | None,
) -> None:
    store = world.cluster.store
    if copy:
        with refuse_invalid_objects(scenario.like):
            for name in silent_nodes(copy):
                fleet.machines[name].power = Power.OFF
    for machine in fleet.machines.values():
        world.kubelets.add(machine)
    _report_other_addresses(world, fleet)
    if copy:
        with refuse_invalid_objects(scenario.like):
            fill(store, copy)
    node_uids = {name_of(node): uid(node) for node in store.items(NODES)}
    for template in scenario.workloads:
        for workload in copies_of(template, plans):
            ensure_namespace(store, workload.namespace)
            for kind, obj in workload_objects(workload, plans, node_uids):
                store.create(kind, with_defaults(kind, obj))
    world.fast_forward()


def _report_other_addresses(world: World, fleet: Fleet) -> None:
    for kubelet in world.kubelets.values():
        name = kubelet.host.settings.address_of
        if not name:
            continue
        if name not in fleet.machines:
            raise ScenarioError(
                f"{kubelet.host.name} must report the address of a host, but {name} is not one"
            )
        kubelet.report_address(fleet.machines[name].address)


def _create_folder(directory: Path) -> LabFiles:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot use {directory} for the lab's files: {error.strerror}") from error
    return LabFiles(directory.resolve())


def _write_files(
    running: Simulation, authority: credentials.Authority, token: str, client_key: asyncssh.SSHKey
) -> None:
    files = running.files
    hosts = running.fleet.inventory
    server = running.api.url
    credentials.write_kubeconfig(files.kubeconfig, server=server, authority=authority, token=token)
    credentials.write_client_key(files.key, client_key)
    credentials.write_known_hosts(files.known_hosts, hosts)
    credentials.write_inventory(files.inventory, hosts, user=USER, key=files.key)


def _raise_file_limit(hosts: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hosts * _FILES_PER_HOST + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
