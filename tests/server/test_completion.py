"""Hosts whose nodes run a Job, on a lab whose time passes 120 times as fast."""

import signal
import time

from tests.apply.test_completion import SPEED, TOO_LONG, WAITING, watched, with_job
from tests.conftest import StartLab
from tests.server.conftest import Client, Serve
from tests.state import is_cordoned, marks_of
from tests.waiting import wait_until

TWENTY_MINUTES = 1200
NODE = "worker-1"


def test_a_host_may_reboot_once_its_job_has_finished_and_other_servers_wait_too(
    start_lab: StartLab, serve: Serve
) -> None:
    lab = start_lab(with_job(TWENTY_MINUTES), speed=SPEED)
    job = watched(lab)
    server = serve(lab, *WAITING)
    client = Client(lab, NODE)
    client.await_drain(server)
    wait_until(lambda: marks_of(lab, NODE).get("phase") == "draining")
    # Longer than the drain timeout.
    time.sleep(4)
    server.end(signal.SIGKILL)
    client.await_grant(serve(lab, *WAITING))
    assert job.deleted_in == ["Succeeded"]


def test_a_host_whose_job_runs_too_long_keeps_its_boot_and_backs_off(
    start_lab: StartLab, serve: Serve
) -> None:
    lab = start_lab(with_job(TOO_LONG), speed=SPEED)
    job = watched(lab)
    server = serve(lab, *WAITING, "--set", "drain.wait-for-completion-timeout=3s")
    client = Client(lab, NODE)
    client.await_drain(server)
    wait_until(lambda: client.request_reboot(server).kind == "failed_recently")
    assert "its pods had not completed" in client.request_reboot(server).value
    assert not is_cordoned(lab, NODE)
    assert not job.deleted_in
