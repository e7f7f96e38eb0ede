"""Addresses compared as addresses: the one place that decides whether two spellings mean one host."""

import ipaddress


def same_form(text: str) -> str:
    """Return one spelling for every spelling of an address; a name in lower case, without its final dot.

    Brackets go, IPv6 is compressed, and an IPv4 address that is mapped into IPv6 is IPv4. A zone is kept, since
    link-local addresses of two interfaces are two hosts.
    """
    bare = text.strip().removeprefix("[").removesuffix("]")
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return bare.lower().removesuffix(".")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def same_place(text: str) -> str:
    """Return the same for a name in known_hosts, which may be `[ADDRESS]:PORT`."""
    if text.startswith("[") and "]:" in text:
        address, _, port = text.rpartition("]:")
        return f"[{same_form(address)}]:{port}"
    return same_form(text)
