"""What doctor says of the places that a run tells: where metrics are left, and where notifications go."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

from rollout.adapters.notify import DeliveryError, deliver
from rollout.cli import wiring
from rollout.cli.settings.schema import Metrics, Notify
from rollout.errors import RolloutError
from rollout.gather.doctor.checks import Check, CheckName, passed, warned
from rollout.model.notification import Note, written
from rollout.model.text import timestamp


def notification_checks(options: Notify, cluster: str, *, test: bool) -> Iterator[Check]:
    """Where notifications would go; with `test`, whether they arrive."""
    body = "rollout doctor --notify-test sent this. Nothing has happened."
    at = timestamp(wiring.system_clock().now())
    note = written(Note(event="test", at=at, cluster=cluster, title="test of notifications", body=body))
    for place in wiring.notify_destinations(options):
        try:
            if test:
                deliver(place, note)
        except DeliveryError as error:
            yield warned(
                CheckName.NOTIFICATIONS, place.name, f"the test did not arrive: {error}", "Check its URL in notify.url."
            )
        else:
            said = "accepted a test" if test else "not tried: --notify-test sends a test"
            yield passed(CheckName.NOTIFICATIONS, place.name, said)


def metrics_checks(metrics: Metrics) -> Iterator[Check]:
    """Whether metrics could be left there now. Nothing is written, pushed or served."""
    if metrics.textfile:
        yield _textfile(metrics.textfile)
    if metrics.pushgateway:
        gateway = wiring.pushgateway(metrics.pushgateway, "")
        yield _tried(gateway.url, gateway.ask, "answers", "Check metrics.pushgateway.")
    if address := metrics.listen:
        fix = "See what listens there: ss -ltnp. A standing operate on this machine does so, too."
        yield _tried(address, lambda: wiring.try_listening(address), "free to listen on", fix)


def _tried(subject: str, trial: Callable[[], None], well: str, fix: str) -> Check:
    try:
        trial()
    except RolloutError as error:
        return warned(CheckName.METRICS, subject, error.message, fix)
    return passed(CheckName.METRICS, subject, well)


def _textfile(file: Path) -> Check:
    """Judged without a trace: the file is replaced as a whole, so another one has to fit into its folder."""
    folder, fix = file.absolute().parent, "Make it writable for this user, or change metrics.textfile."
    if not folder.is_dir():
        return warned(CheckName.METRICS, str(file), f"{folder} is not a folder", "Make it, or change metrics.textfile.")
    if file.is_dir():
        return warned(CheckName.METRICS, str(file), "a folder has this name", "Change metrics.textfile.")
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        return warned(CheckName.METRICS, str(file), f"{folder} cannot be written: {error.strerror}", fix)
    return passed(CheckName.METRICS, str(file), "its folder can be written")
