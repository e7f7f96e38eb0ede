#!/usr/bin/env python3
"""Power-cycle the host of a node through its BMC with Redfish, for rollout's reboot.rescue.

    redfish-power-cycle.py https://{node}-bmc.example.com

`{node}` and `{address}` stand for the name of the node and the address of its host. The user and
the password come from the entry for the BMC in ~/.netrc, or in the file that you specify with the
environment variable NETRC. To specify a file with your CA certificates, set the environment
variable SSL_CERT_FILE.
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
# The script uses the first reset type that the BMC allows.
RESETS = ("PowerCycle", "ForceRestart")


class Bmc:
    """A Redfish service."""

    def __init__(self, url: str) -> None:
        name = urlsplit(url).hostname or ""
        login = netrc.netrc(os.environ.get("NETRC")).authenticators(name)
        if login is None:
            sys.exit(f"the netrc file has no entry for {name}")
        user, _account, password = login
        self.url = url
        self.authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    def request(self, path: str, body: object = None) -> Any:
        """Send a GET, or a POST if there is a body, and return the JSON of the response."""
        headers = {"Authorization": self.authorization, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with urlopen(Request(urljoin(self.url, path), data, headers), timeout=SECONDS) as response:
            return json.loads(response.read() or b"null")


def main() -> None:
    node = os.environ["ROLLOUT_RESCUE_NODE"]
    bmc = Bmc(sys.argv[1].format(node=node, address=os.environ["ROLLOUT_RESCUE_ADDRESS"]))
    systems = bmc.request("/redfish/v1/Systems")["Members"]
    if len(systems) != 1:
        sys.exit(f"the BMC of {node} has {len(systems)} systems; this script supports only one")
    system = bmc.request(systems[0]["@odata.id"])
    reset = system["Actions"]["#ComputerSystem.Reset"]
    allowed = reset.get("ResetType@Redfish.AllowableValues", RESETS)
    kind = next((kind for kind in RESETS if kind in allowed), RESETS[-1])
    if system.get("PowerState") == "Off":
        kind = "On"
    bmc.request(reset["target"], {"ResetType": kind})
    print(f"{node}: the BMC accepted {kind}; the power was {system.get('PowerState', 'unknown')}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        # Errors of urllib are OSErrors, too.
        sys.exit(f"the request to the BMC failed: {error}")
