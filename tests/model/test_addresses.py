import pytest

from rollout.model.addresses import same_form, same_place


@pytest.mark.parametrize(
    "spelling",
    ["fd00::1", "FD00::1", "fd00:0:0:0:0:0:0:1", "fd00:0000::0001", "[fd00::1]", " fd00::1 "],
)
def test_every_spelling_of_an_address_has_one_form(spelling: str) -> None:
    assert same_form(spelling) == "fd00::1"


def test_a_mapped_address_is_the_ipv4_address() -> None:
    assert same_form("::ffff:10.0.0.1") == "10.0.0.1"


def test_a_zone_tells_addresses_apart() -> None:
    assert same_form("FE80:0::1%eth0") == "fe80::1%eth0"


def test_a_name_is_compared_without_case_and_final_dot() -> None:
    assert same_form("Worker-1.Example.") == "worker-1.example"


def test_a_place_keeps_its_port() -> None:
    assert same_place("[FD00:0::1]:2222") == "[fd00::1]:2222"
