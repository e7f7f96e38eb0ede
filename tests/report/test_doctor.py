"""What is printed of three hundred hosts' findings."""

from rollout.gather.doctor.checks import Check, CheckName, failed, ordered, passed, warned
from rollout.report.doctor import doctor_text

UNREACHABLE = "{0}: cannot connect to 10.0.{1}.{2}:22: connection refused"
NAMES = [f"worker-{number}" for number in range(1, 301)]


def many() -> tuple[Check, ...]:
    checks = [failed(CheckName.SSH, name, UNREACHABLE.format(name, 1, i), "Is it up?") for i, name in enumerate(NAMES)]
    checks += [passed(CheckName.RIGHT, f"get {name}", "granted") for name in NAMES]
    checks += [
        warned(CheckName.CLOCK, name, f"its clock is {40 + i} s ahead", "See timedatectl.")
        for i, name in enumerate(NAMES[:3])
    ]
    checks.append(warned(CheckName.CLOCK, "worker-9", "its clock is stopped", "See timedatectl."))
    return ordered(checks)


def test_findings_that_are_alike_are_one_line() -> None:
    lines = doctor_text(many()).splitlines()
    assert len(lines) == 9
    assert lines[1].startswith("✘ ssh")
    assert "worker-1, worker-2, worker-3, worker-4, worker-5 and 295 more: such as worker-1: cannot connect" in lines[1]
    assert lines[2].strip() == "fix: Is it up?"
    assert "worker-1, worker-2, worker-3: such as its clock is 40 s ahead" in lines[3]
    assert "worker-9: its clock is stopped" in lines[5]
    assert lines[-1] == "300 checks passed, 4 to look at, 300 failed."


def test_what_differs_in_an_annotations_name_is_not_alike() -> None:
    """The fix of one would not mend the other."""
    names = (
        "flatcar-linux-update.v1.flatcar-linux.net/reboot-paused",
        "container-linux-update.v1.coreos.com/reboot-paused",
    )
    checks = [
        warned(
            CheckName.NODE, f"worker-{number}", f"paused by its annotation {name}", f"Remove {name} of worker-{number}"
        )
        for name in names
        for number in (1, 2)
    ]
    lines = [line.strip() for line in doctor_text(checks).splitlines()]
    assert [line for line in lines if line.startswith("fix")] == [
        f"fix (of worker-1): Remove {name} of worker-1" for name in names
    ]
