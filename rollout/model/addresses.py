"""Addresses and host names in one spelling, so that they can be compared."""

import ipaddress


def normalize_address(text: str) -> str:
    """Return an address in its usual spelling, or a name in lower case without its final dot.

    Brackets are dropped, IPv6 is compressed, and an IPv4-mapped IPv6 address becomes IPv4. A zone
    stays, because link-local addresses of two interfaces are two hosts.
    """
    bare = text.strip().removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower().removesuffix(".")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(address)


def normalize_known_host(text: str) -> str:
    """Return the usual spelling of a name in known_hosts, which may be `[ADDRESS]:PORT`."""
    if text.startswith("[") and "]:" in text:
        address, _, port = text.rpartition("]:")
        return f"[{normalize_address(address)}]:{port}"
    return normalize_address(text)
