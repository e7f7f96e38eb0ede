import pytest

from rollout.model.host import normalize_address, normalize_known_host


@pytest.mark.parametrize(
    "spelling",
    ["fd00::1", "FD00::1", "fd00:0:0:0:0:0:0:1", "fd00:0000::0001", "[fd00::1]", " fd00::1 "],
)
def test_every_spelling_of_an_address_has_one_form(spelling: str) -> None:
    assert normalize_address(spelling) == "fd00::1"


def test_a_mapped_address_is_the_ipv4_address() -> None:
    assert normalize_address("::ffff:10.0.0.1") == "10.0.0.1"


def test_a_zone_tells_addresses_apart() -> None:
    assert normalize_address("FE80:0::1%eth0") == "fe80::1%eth0"


def test_a_name_is_compared_without_case_and_final_dot() -> None:
    assert normalize_address("Worker-1.Example.") == "worker-1.example"


def test_a_place_keeps_its_port() -> None:
    assert normalize_known_host("[FD00:0::1]:2222") == "[fd00::1]:2222"
