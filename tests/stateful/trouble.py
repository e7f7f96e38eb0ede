"""What can befall a cluster while a rollout is under way: by the network, by machines, and by other
people.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from rollout.adapters.kube.api import connect
from rollout.errors import ApiError
from rollout.execution.record.memory import change_memory
from rollout.lab.api.faults import ApiFault, FaultAnswer
from rollout.lab.api.resources import CONFIGMAPS, LEASES, NODES, PODS
from rollout.lab.api.store import Json
from rollout.lab.hosts.faults import HEALTHY, HostFaults, RebootFault, SshFault
from rollout.lab.hosts.machine import Machine, Power
from rollout.lab.lab import Lab
from rollout.lab.objects import is_daemon, is_deleting, is_mirror, phase, spec_of, with_condition
from rollout.model.memory import Pause
from tests.security.hands import cordon_for_good, refill, set_well
from tests.stateful.witness import CORDONED_BY_US, PATIENTLY, PAUSED, PHASE, PREFIX, RUN, Witness
from tests.stateful.workloads import start_job

_ANSWERS = (
    FaultAnswer.TOO_MANY_REQUESTS,
    FaultAnswer.INTERNAL_ERROR,
    FaultAnswer.UNAVAILABLE,
    FaultAnswer.TIMEOUT,
    FaultAnswer.CONFLICT,
    FaultAnswer.DROP,
    FaultAnswer.LOSE_ANSWER,
    FaultAnswer.SLOW,
    FaultAnswer.HANG,
)
_HALF_A_PLAN = '{"format_version":'
STORMS = tuple(answer.value for answer in _ANSWERS)
SICKNESSES = {
    "slow to answer": HostFaults(answer_delay_seconds=20),
    "slow to boot": HostFaults(boot_seconds=240),
    "never back": HostFaults(reboot=RebootFault.NEVER_RETURNS),
    "ignores reboots": HostFaults(reboot=RebootFault.IGNORED),
    "rolls back": HostFaults(reboot=RebootFault.ROLLS_BACK),
    "closes ssh": HostFaults(ssh=SshFault.CLOSED),
    "refuses the key": HostFaults(ssh=SshFault.KEY_REFUSED),
    "talks garbage": HostFaults(garbage=True),
    "stages again": HostFaults(stages_again=True),
    "rolls back and stages again": HostFaults(reboot=RebootFault.ROLLS_BACK, stages_again=True),
}
# What crashes, by the beginnings of the pods' names.
MEMBERS = ("etcd", "kube-apiserver")
DAEMONS = ("cilium", "kube-proxy")
_NEEDED = {"/run/reboot-required": ""}


class Trouble:
    """Makes it, in one lab, under the eyes of one witness. Times are simulated seconds."""

    def __init__(self, lab: Lab, witness: Witness) -> None:
        self._lab = lab
        self._witness = witness
        self._api = connect(lab.kubeconfig, None)
        self._outages: list[asyncio.Task[None]] = []
        self._jobs = 0
        self.network = False

    # The network.

    def outage(self, seconds: float) -> None:
        """The API server is away."""
        self.network = True
        self._witness.within = PATIENTLY

        async def begin() -> None:
            self._outages.append(asyncio.create_task(self._lab.api.outage(seconds)))

        self._lab.run(begin)

    def storm(self, answer: str, seconds: float, probability: float) -> None:
        """The API server answers that way for a while."""
        self.network = True
        self._witness.within = PATIENTLY
        fault = ApiFault(
            answer=FaultAnswer(answer), duration=seconds, probability=probability, delay=20
        )
        self._lab.call(lambda: self._lab.faults.add(fault))

    # Machines.

    def sicken(self, node: str, sickness: str) -> None:
        """A host gets something."""
        self._lab.call(lambda: self._machine(node).inflict(SICKNESSES[sickness]))

    def heal(self, node: str) -> None:
        """It is well again."""

        def mend() -> None:
            machine = self._machine(node)
            machine.inflict(HEALTHY)
            machine.boot_files = {}
            machine.power_on()

        self._lab.call(mend)

    def cut_power(self, node: str, seconds: float) -> None:
        """A host loses its power, for a while."""

        def cut() -> None:
            machine = self._machine(node)
            with self._witness.others():
                machine.cut_power()
            asyncio.get_running_loop().call_later(machine.clock.scaled(seconds), machine.power_on)

        self._lab.call(cut)

    def reboot(self, node: str) -> None:
        """Somebody else reboots a host, by hand."""

        def do() -> None:
            machine = self._machine(node)
            if machine.power is Power.RUNNING and machine.faults.reboot is not RebootFault.IGNORED:
                self._witness.rebooting_by_others.add(node)
                machine.reboot()

        self._lab.call(do)

    def need_reboots(self, node: str) -> None:
        """Something asks for its reboot, and again after every boot."""

        def need() -> None:
            machine = self._machine(node)
            machine.boot_files = _NEEDED
            machine.files |= _NEEDED

        self._lab.call(need)

    def silence(self, node: str, seconds: float) -> None:
        """Its kubelet says that it is not Ready, for a while."""
        self._lab.call(lambda: self._witness.note_silence(node))
        self._lab.call(lambda: self._set_ready(node, ready=False))
        later = self._lab.world.cluster.clock.scaled(seconds)
        self._lab.call(
            lambda: asyncio.get_running_loop().call_later(
                later, lambda: self._set_ready(node, ready=True)
            )
        )

    def _set_ready(self, node: str, *, ready: bool) -> None:
        kubelet = self._lab.world.kubelets.get(node)
        if kubelet is not None:
            kubelet.set_ready(ready=ready)

    def set_well(self, node: str, name: str, *, well: bool) -> None:
        """Pods that stay on a node crash, or run again."""
        self._lab.call(lambda: set_well(self._lab, node, name, well=well))

    def _machine(self, node: str) -> Machine:
        return self._lab.machines[node]

    # Other people.

    def set_cordon(self, node: str, *, cordoned: bool) -> None:
        """Somebody cordons or uncordons, as kubectl does: nothing is written where nothing changes."""

        def change(found: Json) -> Json:
            rest = {key: value for key, value in spec_of(found).items() if key != "unschedulable"}
            return {**found, "spec": {**rest, **({"unschedulable": True} if cordoned else {})}}

        self._on_node(node, change)

    def cordon_for_good(self, node: str) -> None:
        """Somebody has cordoned the node long ago, so that it counts as available."""
        self._lab.call(partial(cordon_for_good, self._lab, node))

    def set_pause(self, node: str, *, paused: bool) -> None:
        """Somebody pauses a node, by its annotation, or ends that; without a node, all of them."""
        if not node:
            pause = Pause("ada", reason="for now") if paused else None
            with suppress(ApiError):
                change_memory(self._api, "kube-system", partial(replace, pause=pause))
        else:
            self._on_node(
                node, partial(_annotated, annotations={PAUSED: "true" if paused else None})
            )

    def set_maintenance(self, node: str, *, begins: bool) -> None:
        """Somebody maintains a node, by its condition, or has ended that."""
        status = "True" if begins else "False"
        maintained = {"type": "MaintenanceInProgress", "status": status, "reason": "Firmware"}
        now = self._lab.world.cluster.now()
        self._on_node(node, lambda found: with_condition(found, maintained, now))

    def leave_failed(self, node: str) -> None:
        """An earlier run has left this node: failed, cordoned, with its marks."""
        machine = self._machine(node)
        left = {
            RUN: "20200101t000000z-early",
            PHASE: "failed",
            CORDONED_BY_US: "true",
            PREFIX + "boot-id-before": machine.boot_id,
            PREFIX + "machine-id": machine.machine_id,
            PREFIX + "staged-version": machine.update_engine.staged or "",
        }
        self._on_node(node, partial(_annotated, annotations=left))
        self.set_cordon(node, cordoned=True)

    def _on_node(self, node: str, change: Callable[[Json], Json]) -> None:
        def do() -> None:
            found = self._lab.store.get(NODES, node)
            if found is not None and (changed := change(found)) != found:
                with self._witness.others():
                    self._lab.store.put(NODES, changed)

        self._lab.call(do)

    def refill(self, node: str) -> None:
        """Somebody binds a pod to a node, past its cordon."""

        def do() -> None:
            if self._lab.store.get(NODES, node) is not None:
                self._witness.put_there(refill(self._lab, node))

        self._lab.call(do)

    def start_job(self, seconds: int) -> None:
        """Start a Job, which runs for so many seconds."""
        self._jobs += 1
        self._lab.call(partial(start_job, self._lab, self._jobs, seconds))

    def swap_addresses(self, one: str, other: str) -> None:
        """The kubelets of two hosts report each other's address."""
        machines = self._lab.machines
        self._report_address(one, machines[other].address)
        self._report_address(other, machines[one].address)

    def _report_address(self, node: str, address: str) -> None:
        def do() -> None:
            kubelet = self._lab.world.kubelets.get(node)
            if kubelet is not None:
                kubelet.report_address(address)

        self._lab.call(do)

    def garble_record(self) -> None:
        """Somebody writes over a part of the record."""

        def do() -> None:
            found = self._lab.store.get(CONFIGMAPS, "node-rollout", "kube-system")
            if found is not None:
                self._lab.store.put(
                    CONFIGMAPS, {**found, "data": {"plan.json": _HALF_A_PLAN}, "binaryData": {}}
                )

        self._lab.call(do)

    @property
    def record_is_garbled(self) -> bool:
        """Whether a record stands that nobody can understand."""
        found = self._lab.call(
            lambda: self._lab.store.get(CONFIGMAPS, "node-rollout", "kube-system")
        )
        return found is not None and found.get("data", {}).get("plan.json") == _HALF_A_PLAN

    def inventory_without(self, node: str) -> Path:
        """An inventory of all hosts but this one."""
        hosts = (machine for name, machine in self._lab.machines.items() if name != node)
        port = self._lab.ssh_port
        lines = [
            f"{machine.name} ansible_host={machine.address} ansible_port={port}"
            for machine in hosts
        ]
        file = self._lab.directory / f"without-{node}.ini"
        file.write_text("\n".join(["[all]", *lines, ""]))
        return file

    def delete_node(self, node: str) -> None:
        """Somebody deletes a Node; its kubelet registers it anew when it starts again, as with the
        next boot.
        """

        def do() -> None:
            if self._lab.store.get(NODES, node) is not None:
                self._lab.store.remove(NODES, node)

        self._lab.call(do)

    def report_soon(self, node: str, seconds: float) -> None:
        """Its kubelet reports sooner than it would have."""

        def do() -> None:
            kubelet = self._lab.world.kubelets.get(node)
            if kubelet is not None:
                asyncio.get_running_loop().call_later(
                    self._lab.world.cluster.clock.scaled(seconds), kubelet.report
                )

        self._lab.call(do)

    def restart_kubelet_soon(self, node: str, seconds: float) -> None:
        """Somebody restarts its kubelet, which registers its Node again."""

        def do() -> None:
            kubelet = self._lab.world.kubelets.get(node)
            if kubelet is not None:
                asyncio.get_running_loop().call_later(
                    self._lab.world.cluster.clock.scaled(seconds), kubelet.restart
                )

        self._lab.call(do)

    def evict(self, number: int) -> None:
        """Somebody drains elsewhere: asks for a pod's eviction, as its budgets allow."""
        pod = self._pod(number)
        if pod is None:
            return
        meta = pod["metadata"]
        self._witness.evicted_by_others.add(meta["uid"])
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"]}}
        with suppress(ApiError):
            self._api.create(
                f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", body
            )

    def delete_pod(self, number: int) -> None:
        """Somebody deletes a pod, whatever its budgets say."""
        pod = self._pod(number)
        if pod is None:
            return

        def do() -> None:
            found = self._lab.world.cluster.current(PODS, pod)
            if found is not None and not is_deleting(found):
                self._witness.excuse(found)
                self._lab.world.cluster.delete(PODS, found)

        self._lab.call(do)

    def _pod(self, number: int) -> Json | None:
        def find() -> list[Json]:
            pods = self._lab.store.items(PODS)
            return [
                pod
                for pod in pods
                if phase(pod) == "Running" and not is_daemon(pod) and not is_mirror(pod)
            ]

        pods = sorted(self._lab.call(find), key=lambda pod: str(pod["metadata"]["name"]))
        return pods[number % len(pods)] if pods else None

    def steal_lease(self) -> None:
        """Somebody else holds the Lease from now on."""
        self._hold_lease("thief@elsewhere/1")

    def _hold_lease(self, holder: str) -> None:
        def do() -> None:
            lease = self._lab.store.get(LEASES, "node-rollout", "kube-system")
            if lease is not None and lease["spec"].get("holderIdentity"):
                self._lab.store.put(
                    LEASES, {**lease, "spec": {**lease["spec"], "holderIdentity": holder}}
                )

        self._lab.call(do)

    # The end of it.

    def end(self) -> None:
        """Network and machines are well, every kubelet has reported; what people did stands, but
        for pauses.
        """
        self._lab.call(self._lab.faults.clear)
        for task in self._outages:
            self._lab.call(task.cancel)
        self._lab.call(self._lab.api.come_back)
        for node, machine in self._lab.machines.items():
            self._report_address(node, machine.address)
            self.heal(node)
            self.set_pause(node, paused=False)
            self.set_maintenance(node, begins=False)
            for name in (*MEMBERS, *DAEMONS):
                self.set_well(node, name, well=True)
            self._lab.call(partial(self._set_ready, node, ready=True))
            self.report_soon(node, 0)
        self.set_pause("", paused=False)

    def lift_cordons(self) -> None:
        """Everyone uncordons the nodes that they have cordoned."""
        for node in sorted(self._witness.cordons):
            self.set_cordon(node, cordoned=False)


def _annotated(node: Json, annotations: Mapping[str, str | None]) -> Json:
    """The Node with these annotations; None takes one away."""
    metadata = node["metadata"]
    laid = {**(metadata.get("annotations") or {}), **annotations}
    kept = {name: value for name, value in laid.items() if value is not None}
    return {**node, "metadata": {**metadata, "annotations": kept}}
