"""The scoreboard: what it counts, and what it does not."""

from rollout.lab.api.resources import NODES, PODS
from rollout.lab.hosts.machine import HostSettings
from rollout.lab.objects import with_metadata, with_status
from rollout.lab.scoreboard import HostVersions, Scoreboard
from tests.lab.world.simulation import Simulation, names


def score(sim: Simulation) -> Scoreboard:
    return sim.keeper.scoreboard()


def cluster(*, replicas: int = 4, **limit: int | str) -> Simulation:
    sim = Simulation(4)
    sim.deployment("web", replicas)
    sim.daemon_set("agent")
    sim.budget("web", **(limit or {"maxUnavailable": 1}))
    sim.begin()
    return sim


def take_through(sim: Simulation, name: str) -> None:
    sim.cordon(name)
    sim.drain(name)
    sim.switch_off(name)
    sim.advance(20)
    sim.switch_on(name)
    sim.advance(15)
    sim.cordon(name, wanted=False)


def test_a_careful_rolling_reboot_is_clean() -> None:
    sim = cluster()
    for name in sim.hosts:
        take_through(sim, name)
    board = score(sim)
    assert board.clean
    assert board.reboots == dict.fromkeys(sim.hosts, 1)
    assert board.versions["n1"] == HostVersions("4081.2.0", "4152.2.0")
    assert board.most_unavailable == 1
    assert board.evictions >= 4
    # All four were moved from where they had been; whatever went beyond that had moved before.
    assert board.moved_twice == board.evictions - 4
    assert board.deletions == 0
    assert board.hosts_down == ()
    assert board.rebooted_undrained == ()


def test_pods_that_die_with_their_host_were_killed() -> None:
    sim = cluster()
    (victim,) = names(sim.pods("web", node="n1"))
    sim.switch_off("n1")
    board = score(sim)
    assert board.killed == (f"apps/{victim}",)
    assert board.rebooted_undrained == ("n1",)
    assert board.hosts_down == ("n1",)
    assert not board.clean


def test_a_pod_that_is_still_terminating_was_killed_too() -> None:
    sim = Simulation(2)
    sim.pod("slow", node="n1", annotations={"lab.node-rollout.dev/termination-seconds": "20"})
    sim.begin()
    sim.evict("slow")
    sim.advance(5)
    sim.switch_off("n1")
    assert score(sim).killed == ("apps/slow",)


def test_daemon_mirror_pending_and_finished_pods_are_not_killed() -> None:
    sim = Simulation(1)
    sim.daemon_set("agent")
    sim.pod("mirror", node="n1", annotations={"kubernetes.io/config.mirror": "x"})
    sim.pod("done", node="n1")
    sim.begin()
    sim.store.put(PODS, with_status(sim.get(PODS, "done"), phase="Succeeded"))
    sim.pod("starting", node="n1", annotations={"lab.node-rollout.dev/startup-seconds": "60"})
    sim.advance(1)
    sim.switch_off("n1")
    assert score(sim).killed == ()
    assert score(sim).clean


def test_evicting_more_than_the_budget_allows_breaks_it_once_and_tells_by_how_much() -> None:
    sim = cluster()
    victims = names(sim.pods("web"))[:3]
    for name in victims:
        sim.delete(PODS, name)
    board = score(sim)
    assert [(each.name, each.below) for each in board.budgets_broken] == [("apps/web", 2)]
    assert board.budgets_broken[0].at.endswith("Z")
    assert board.deletions == 3
    assert board.evictions == 0


def test_a_host_that_takes_several_pods_of_a_budget_breaks_it() -> None:
    sim = Simulation(2)
    sim.deployment("web", 4)
    sim.budget("web", maxUnavailable=1)
    sim.begin()
    sim.switch_off("n1")
    assert [(each.name, each.below) for each in score(sim).budgets_broken] == [("apps/web", 1)]


def test_budgets_of_daemon_pods_count_with_their_host() -> None:
    sim = Simulation(3)
    sim.daemon_set("agent")
    sim.budget("agent", minAvailable=2)
    sim.begin()
    sim.switch_off("n1")
    assert score(sim).clean
    sim.switch_off("n2")
    assert [each.name for each in score(sim).budgets_broken] == ["apps/agent"]


def test_cordons_of_the_scenario_are_its_own() -> None:
    sim = Simulation(2)
    sim.add_node("theirs", HostSettings(cordoned=True))
    sim.begin()
    assert score(sim).cordons_left == ()
    assert score(sim).most_unavailable == 0
    sim.cordon("n1")
    board = score(sim)
    assert board.cordons_left == ("n1",)
    assert board.most_unavailable == 1
    assert not board.clean
    sim.cordon("n1", wanted=False)
    assert score(sim).clean


def test_the_most_unavailable_counts_all_reasons_together_and_stays() -> None:
    sim = Simulation(5)
    sim.cordon("n1")
    sim.switch_off("n2")
    kubelet = sim.world.kubelets.get("n3")
    assert kubelet is not None
    kubelet.set_ready(ready=False)
    assert score(sim).most_unavailable == 3
    kubelet.set_ready(ready=True)
    sim.switch_on("n2")
    sim.advance(20)
    sim.cordon("n1", wanted=False)
    assert score(sim).most_unavailable == 3


def test_annotations_left_behind_are_named_but_for_the_last_result() -> None:
    sim = Simulation(2)
    left = {
        "node-rollout.dev/phase": "draining",
        "node-rollout.dev/last-result": "ok",
        "other.dev/x": "y",
    }
    sim.store.put(NODES, with_metadata(sim.node("n1"), annotations=left))
    assert score(sim).annotations_left == {"n1": ("node-rollout.dev/phase",)}


def test_a_pending_pod_s_eviction_counts_though_it_is_gone_at_once() -> None:
    sim = Simulation(1)
    sim.cordon("n1")
    sim.pod("waiting")
    sim.advance(1)
    sim.evict("waiting")
    assert not sim.has(PODS, "waiting")
    assert score(sim).evictions == 1
