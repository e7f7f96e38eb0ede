import pytest

from rollout.gather.cluster.quantities import milli, parse_quantity, whole


@pytest.mark.parametrize(
    ("text", "cpu"),
    [
        ("100m", 100),
        ("1", 1000),
        ("1.5", 1500),
        ("0", 0),
        (".5", 500),
        ("2.", 2000),
        ("100u", 1),
        ("1n", 1),
        ("1500000n", 2),
        ("0.0001", 1),
        ("2k", 2_000_000),
        ("+3", 3000),
    ],
)
def test_cpu_in_thousandths_of_a_core_rounded_up(text: str, cpu: int) -> None:
    assert milli(text) == cpu


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("128974848", 128_974_848),
        ("2Gi", 2 << 30),
        ("1.5Gi", 3 << 29),
        ("129M", 129_000_000),
        ("123Mi", 123 << 20),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12e6", 12_000_000),
        ("5e-1", 1),
        ("5k", 5000),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("1T", 10**12),
        ("3Ki", 3072),
        ("128974848000m", 128_974_848),
        ("110", 110),
    ],
)
def test_whole_units(text: str, number: int) -> None:
    assert whole(text) == number


@pytest.mark.parametrize("text", ["", "m", "1x", "1 Gi", "Gi1", "1e", "0x10", "1.2.3", "\u0661", "1gi", "--1", "e3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
