#!/usr/bin/env python3
"""Power-cycle the host of a node through its BMC with Redfish, for rollout's reboot.rescue.

    redfish-power-cycle.py https://{node}-bmc.example.com

`{node}` and `{address}` stand for the node's name and the address of its host. The login comes from
the entry for the BMC's name in ~/.netrc, or in the file that the variable NETRC names. The
variable SSL_CERT_FILE names the file with your CA certificates.
"""

import base64
import json
import netrc
import os
import sys
from typing import Any
from urllib.parse import urljoin, urlsplit
from urllib.request import Request, urlopen

SECONDS = 30
# The first that the BMC allows is used.
RESETS = ("PowerCycle", "ForceRestart")


class Bmc:
    """A Redfish service."""

    def __init__(self, url: str) -> None:
        name = urlsplit(url).hostname or ""
        login = netrc.netrc(os.environ.get("NETRC")).authenticators(name)
        if login is None:
            sys.exit(f"no login for {name} in the netrc file")
        user, _account, password = login
        self.url = url
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def request(self, path: str, body: object = None) -> Any:
        """Return the JSON of the answer to a GET, or to a POST if there is a body."""
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(urljoin(self.url, path), data, headers), timeout=SECONDS) as answer:
            return json.loads(answer.read() or b"null")


def main() -> None:
    node = os.environ["ROLLOUT_RESCUE_NODE"]
    bmc = Bmc(sys.argv[1].format(node=node, address=os.environ["ROLLOUT_RESCUE_ADDRESS"]))
    systems = bmc.request("/redfish/v1/Systems")["Members"]
    if len(systems) != 1:
        sys.exit(f"the BMC of {node} has {len(systems)} systems: which one is not known")
    system = bmc.request(systems[0]["@odata.id"])
    reset = system["Actions"]["#ComputerSystem.Reset"]
    allowed = reset.get("ResetType@Redfish.AllowableValues", RESETS)
    kind = next((kind for kind in RESETS if kind in allowed), RESETS[-1])
    if system.get("PowerState") == "Off":
        kind = "On"
    bmc.request(reset["target"], {"ResetType": kind})
    print(f"{node}: {kind} accepted, the power was {system.get('PowerState', 'unknown')}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        # urllib's errors are among these.
        sys.exit(f"the BMC cannot be asked: {error}")
