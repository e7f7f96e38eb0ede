"""The parts of the `kubernetes` package: loaded alone, of one piece with the rest for whoever imports it, or whole."""

import subprocess
import sys

import pytest

LOAD = "import sys\nfrom rollout.adapters.kube.client_parts import client_parts\nparts = client_parts()\n"
SLOW = ("kubernetes.client.models", "pydantic", "requests", "requests_oauthlib", "oauthlib", "websocket", "dateutil")


def said(script: str) -> str:
    """What a Python of its own prints: what is imported here already says nothing."""
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_what_is_not_used_is_not_loaded() -> None:
    assert said(f"{LOAD}print([name for name in {SLOW} if name in sys.modules])") == "[]\n"


def test_the_ordinary_import_gives_all_of_the_package_afterwards() -> None:
    """And what was loaded before goes on working beside it."""
    script = (
        f"{LOAD}import kubernetes, oauthlib.oauth2\n"
        "from kubernetes import client, config\n"
        "assert client.V1Node(metadata=client.V1ObjectMeta(name='a')).metadata.name == 'a'\n"
        "assert client.CoreV1Api(client.ApiClient()).api_client.rest_client is not None\n"
        "assert config.load_kube_config.__module__ == 'kubernetes.config.kube_config'\n"
        "assert oauthlib.oauth2.__file__\n"
        "configuration = parts.configuration.Configuration()\n"
        "assert parts.rest.RESTClientObject(configuration).pool_manager is not None\n"
        "print('well')"
    )
    assert said(script) == "well\n"


def test_what_is_needed_later_is_the_real_thing_when_it_is_used() -> None:
    """OpenID Connect renews a token by a session of requests_oauthlib, and tells one error of oauthlib's."""
    script = (
        f"{LOAD}session = parts.kube_config.OAuth2Session(client_id='a')\n"
        "error = parts.kube_config.oauthlib.oauth2.rfc6749.errors.InvalidClientIdError\n"
        "client = parts.kube_config.ApiClient(configuration=parts.configuration.Configuration())\n"
        "import oauthlib.oauth2, requests_oauthlib\n"
        "assert type(session) is requests_oauthlib.OAuth2Session\n"
        "assert error is oauthlib.oauth2.rfc6749.errors.InvalidClientIdError\n"
        "print(type(client).__name__)"
    )
    assert said(script) == "ApiClient\n"


@pytest.mark.parametrize(
    "otherwise",
    ["import kubernetes\n", "import importlib.util\nimportlib.util.find_spec = lambda name: None\n"],
    ids=["loaded already", "not to be taken apart"],
)
def test_else_it_is_loaded_whole(otherwise: str) -> None:
    whole = "import kubernetes.config.kube_config as whole\nprint(parts.kube_config is whole)"
    assert said(f"{otherwise}{LOAD}{whole}") == "True\n"
