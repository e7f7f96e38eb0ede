"""Decides whether two spellings of an address or a name mean the same host."""

import ipaddress


def normalize_address(text: str) -> str:
    """Return the usual spelling of an address, or a name in lower case without its final dot.

    Brackets are dropped, IPv6 is compressed, and an IPv4-mapped IPv6 address becomes IPv4. A zone
    is kept, because link-local addresses of two interfaces are two hosts.
    """
    bare = text.strip().removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def normalize_known_host(text: str) -> str:
    """Return the usual spelling of a name in known_hosts, which may be `[ADDRESS]:PORT`."""
    if text.startswith("[") and "]:" in text:
        address, _, port = text.rpartition("]:")
        return f"[{normalize_address(address)}]:{port}"
    return normalize_address(text)
