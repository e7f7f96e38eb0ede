"""What a kubeconfig's entries mean, held against client-go."""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import ApiError, ApiUnavailableError, KubeconfigError
from rollout.lab.credentials import new_authority, server_context
from tests.adapters.test_kube_config import authorization, program, refused
from tests.adapters.test_kube_connections import mutual
from tests.scripted_api import QUICK, Exchange, Kubeconfig, scripted
from tests.waiting import is_running, wait_until

Json = dict[str, Any]

API_VERSION = "client.authentication.k8s.io/v1"
MARKER = "s3cr3t-Marker"


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def sent(tmp_path: Path, user: Json) -> str | None:
    """Return the Authorization header of a request."""
    with scripted(authorization) as server:
        path = Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig")
        connect(path, None, timeouts=QUICK).get("/x")
        return server.exchanges[-1].headers["Authorization"]


def why_refused(tmp_path: Path, user: Json, **cluster: object) -> str:
    path = Kubeconfig(cluster=cluster, user=user).write(tmp_path / "kubeconfig")
    error = refused(path)
    assert str(path) in error.message
    return f"{error.message} {error.hint}"


def jwt(**claims: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), "s"])


def provider(name: str, **config: object) -> Json:
    entries = {key.replace("_", "-"): value for key, value in config.items()}
    return {"auth-provider": {"name": name, "config": entries}}


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        ({"insecure-skip-tls-verify": "false"}, "$.clusters[0].cluster.insecure-skip-tls-verify"),
        ({"tls-server-name": 5}, "$.clusters[0].cluster.tls-server-name"),
        ({"proxy-url": ["http://p:1"]}, "$.clusters[0].cluster.proxy-url"),
        ({"certificate-authority": True}, "$.clusters[0].cluster.certificate-authority"),
        (
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "eA=="},
            "insecure-skip-tls-verify and a certificate authority",
        ),
    ],
)
def test_a_cluster_that_kubectl_refuses_is_refused(
    tmp_path: Path, cluster: Json, message: str
) -> None:
    assert message in why_refused(tmp_path, {"token": "t"}, **cluster)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"token": 5}, "$.token"),
        ({"exec": {"command": "a", "apiVersion": API_VERSION, "env": [{"name": 5}]}}, "$.exec.env"),
        ({"exec": {"command": "a"}}, "missing required field `apiVersion`"),
        ({"exec": {"command": "", "apiVersion": API_VERSION}}, "$.exec.command"),
        (
            {"exec": {"command": "a", "apiVersion": API_VERSION, "interactiveMode": "never"}},
            "$.exec.interactiveMode",
        ),
        (provider("gcp", access_token="t"), "gke-gcloud-auth-plugin"),
        (provider("azure"), "kubelogin"),
        ({"auth-provider": {"config": {}}}, "missing required field `name`"),
        (
            {
                **provider("oidc", id_token=jwt(exp=4e9)),
                "exec": {"command": "a", "apiVersion": API_VERSION},
            },
            "only one is allowed",
        ),
        ({"token": "t", "username": "ann", "password": "p"}, "a token and a username"),
        ({"client-certificate-data": "eA=="}, "only one of client-certificate and client-key"),
        ({"client-key-data": "eA=="}, "only one of client-certificate and client-key"),
        (provider("oidc"), "no valid id-token"),
        (provider("oidc", id_token="opaque"), "no valid id-token"),
        (provider("oidc", id_token="a.b.c"), "no valid id-token"),
        (provider("oidc", id_token=jwt(sub="ann")), "no valid id-token"),
        (provider("oidc", id_token=jwt(exp=1), refresh_token="r"), "has expired"),
    ],
)
def test_a_user_that_kubectl_would_not_log_in_is_refused(
    tmp_path: Path, user: Json, message: str
) -> None:
    why = why_refused(tmp_path, user)
    assert message in why
    assert "user 'u'" in why


def test_the_ways_to_log_in(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    token = jwt(exp=time.time() + 600)
    plugin = {"command": "no-such-login", "apiVersion": API_VERSION}
    basic = base64.b64encode(b"ann:p%41:\xc3\xa4").decode()
    for user, header in (
        ({"token": "t"}, "Bearer t"),
        ({"token": "t", "tokenFile": "token"}, "Bearer from-file"),
        ({"token": "", "tokenFile": "token"}, "Bearer from-file"),
        ({"token": "t", "exec": plugin}, "Bearer t"),
        ({"username": "ann", "password": "p%41:ä"}, f"Basic {basic}"),
        ({"username": "ann"}, f"Basic {base64.b64encode(b'ann:').decode()}"),
        ({"password": "p"}, None),
        ({"username": "ann", "password": "p%41:ä", "exec": plugin}, f"Basic {basic}"),
        (provider("oidc", id_token=token), f"Bearer {token}"),
        ({}, None),
    ):
        assert sent(tmp_path, user) == header


@pytest.mark.parametrize("section", ["users", "clusters", "contexts"])
def test_two_entries_of_one_name_in_a_file_are_refused(tmp_path: Path, section: str) -> None:
    document = Kubeconfig().document()
    document[section] *= 2
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    error = refused(path)
    assert "more than one entry" in error.message
    assert f"`{section}`" in error.message


def answering(tmp_path: Path, status: object, kind: str = "ExecCredential") -> Json:
    answer = {"apiVersion": API_VERSION, "kind": kind, "status": status}
    return program(tmp_path, f"print({json.dumps(answer)!r})")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (None, "$.status"),
        ([], "$.status"),
        ({"token": None}, "neither a token nor a certificate"),
        ({"token": ["a"]}, "$.status.token"),
        ({"token": "a b\nc"}, "cannot be sent"),
        ({"token": "t", "clientCertificateData": "c"}, "only one of clientCertificateData"),
        ({"token": "t", "expirationTimestamp": "2020-01-01T00:00:00"}, "expirationTimestamp"),
        ({"clientCertificateData": "c", "clientKeyData": "k"}, "client certificate or key"),
    ],
)
def test_an_answer_of_a_program_that_is_not_complete_is_refused(
    tmp_path: Path, status: object, message: str
) -> None:
    path = Kubeconfig(user=answering(tmp_path, status)).write(tmp_path / "kubeconfig")
    assert message in refused(path).message


def test_a_token_and_a_certificate_of_one_answer_are_both_used(tmp_path: Path) -> None:
    authority = new_authority(datetime.now(UTC))
    status = {
        "token": "t",
        "clientCertificateData": authority.certificate.decode(),
        "clientKeyData": authority.server_key.decode(),
    }
    data = base64.b64encode(authority.certificate).decode()
    with scripted(authorization, mutual(authority, tmp_path)) as server:
        config = Kubeconfig(
            server.url,
            cluster={"certificate-authority-data": data},
            user=answering(tmp_path, status),
        )
        api = connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK)
        assert json.loads(api.get("/x")) == {"authorization": "Bearer t"}


def test_a_program_gets_what_kubectl_gives_it_and_no_secrets_of_rollout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLOUT_PROMETHEUS_TOKEN", MARKER)
    authority = new_authority(datetime.now(UTC))
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    body = (
        "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('heard', 'w'));"
        f" print(json.dumps({{'apiVersion': {API_VERSION!r}, 'kind': 'ExecCredential', 'status':"
        " {'token': 't'}}))"
    )
    user = program(tmp_path, body)
    user["exec"] |= {
        "args": ["get-token"],
        "env": [{"name": "PROFILE", "value": "work"}, {"name": "EMPTY"}],
        "provideClusterInfo": True,
    }
    cluster = {
        "certificate-authority": "ca.crt",
        "tls-server-name": "api",
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
            {"name": "other", "extension": 1},
        ],
    }
    monkeypatch.chdir(tmp_path)
    connect(Kubeconfig(cluster=cluster, user=user).write(tmp_path / "kubeconfig"), None)
    words, environment = json.loads((tmp_path / "heard").read_text())
    assert words == ["get-token"]
    assert (environment["PROFILE"], environment["EMPTY"]) == ("work", "")
    assert "ROLLOUT_PROMETHEUS_TOKEN" not in environment
    assert json.loads(environment["KUBERNETES_EXEC_INFO"])["spec"] == {
        "interactive": False,
        "cluster": {
            "server": "https://127.0.0.1:1",
            "tls-server-name": "api",
            "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
            "config": {"audience": "a"},
        },
    }


def test_in_a_pod_the_token_is_read_for_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    monkeypatch.setattr("rollout.adapters.kube.kubeconfig.SERVICE_ACCOUNT", token)
    monkeypatch.setenv("HOME", str(tmp_path))
    authority = new_authority(datetime.now(UTC))
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    with scripted(authorization, server_context(authority, tmp_path)) as server:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.server_port))
        token.write_text("first")
        api = connect(None, None, timeouts=QUICK)
        for content in ("first", "second"):
            token.write_text(content)
            assert json.loads(api.get("/x")) == {"authorization": f"Bearer {content}"}
        token.unlink()
        with pytest.raises(ApiUnavailableError, match="cannot be read"):
            api.get("/x")
        token.write_text("third")
        assert json.loads(api.get("/x")) == {"authorization": "Bearer third"}


def test_the_proxy_of_the_kubeconfig_is_used_in_spite_of_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with scripted(authorization) as proxy:
        config = Kubeconfig("http://api.invalid", cluster={"proxy-url": proxy.url})
        connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK).get("/x")
        assert proxy.exchanges[0].path == "http://api.invalid/x"


def test_paths_are_relative_to_the_file_that_has_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = new_authority(datetime.now(UTC))
    with scripted(authorization, server_context(authority, tmp_path)) as server:
        document = Kubeconfig(server.url, cluster={"certificate-authority": "ca.crt"}).document()
        folders = {}
        for section in ("contexts", "clusters", "users"):
            folders[section] = tmp_path / section
            folders[section].mkdir()
        (folders["clusters"] / "ca.crt").write_bytes(authority.certificate)
        login = answering(folders["users"], {"token": "by-program"})
        login["exec"]["command"] = "./login"
        document["users"] = [{"name": "u", "user": login}]
        document["users"].append({"name": "v", "user": {"tokenFile": "token"}})
        (folders["users"] / "token").write_text("by-file")
        document["contexts"].append({"name": "y", "context": {"cluster": "c", "user": "v"}})
        for section, folder in folders.items():
            part = {section: document[section], "current-context": "x"}
            (folder / "config").write_text(json.dumps(part))
        files = [str(folder / "config") for folder in folders.values()]
        monkeypatch.setenv("KUBECONFIG", os.pathsep.join(files))
        for context, header in (("x", "Bearer by-program"), ("y", "Bearer by-file")):
            answer = connect(None, context, timeouts=QUICK).get("/x")
            assert json.loads(answer) == {"authorization": header}


@pytest.mark.parametrize(
    ("section", "entry"),
    [
        ("users", {"user": {"tokenFile": "pipe"}}),
        ("users", {"user": {"client-certificate": "pipe", "client-key": "pipe"}}),
        (
            "clusters",
            {"cluster": {"server": "https://127.0.0.1:1", "certificate-authority": "pipe"}},
        ),
    ],
)
def test_a_pipe_beside_any_of_the_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, section: str, entry: Json
) -> None:
    document = Kubeconfig().document()
    second = tmp_path / "second"
    second.mkdir()
    os.mkfifo(second / "pipe")
    name = document[section][0]["name"]
    (second / "config").write_text(json.dumps({section: [{"name": name, **entry}]}))
    document[section] = []
    (tmp_path / "first").write_text(json.dumps(document))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'first'}:{second / 'config'}")
    assert "named pipe" in refused(None).message


def test_a_scheme_in_capitals_is_verified_by_the_kubeconfigs_authority(tmp_path: Path) -> None:
    authority = new_authority(datetime.now(UTC))
    with scripted(authorization, server_context(authority, tmp_path)) as server:
        for trusted in (authority, new_authority(datetime.now(UTC))):
            data = base64.b64encode(trusted.certificate).decode()
            config = Kubeconfig(
                server.url.replace("https", "HTTPS"), cluster={"certificate-authority-data": data}
            )
            api = connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK)
            assert api.server == server.url
            if trusted is authority:
                api.get("/x")
            else:
                with pytest.raises(ApiError, match="cannot be verified"):
                    api.get("/x")


def test_aliases_that_double_at_each_level_cost_no_time(tmp_path: Path) -> None:
    lines = ["x0: &x0 [1]", *(f"x{i}: &x{i} [*x{i - 1}, *x{i - 1}]" for i in range(1, 41))]
    content = json.dumps(Kubeconfig().document())[1:-1]
    path = tmp_path / "kubeconfig"
    user = '"user": {"token": "secret", "extensions": [*x40]}'
    content = content.replace('"user": {"token": "secret"}', user)
    assert user in content
    path.write_text("\n".join(["{", *(f"{line}," for line in lines), content, "}"]))
    code = (
        "import pathlib; from rollout.adapters.kube.api import connect;"
        f" connect(pathlib.Path({str(path)!r}), None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_program_ends_with_rollout(tmp_path: Path) -> None:
    """As when a completion returns before a slow login."""
    runs = tmp_path / "runs"
    body = (
        "import os, pathlib, time;"
        f" pathlib.Path({str(runs)!r}).write_text(str(os.getpid())); time.sleep(600)"
    )
    path = Kubeconfig(user=program(tmp_path, body)).write(tmp_path / "kubeconfig")
    code = (
        "import pathlib, time\n"
        "from rollout.adapters.kube.api import connect\n"
        "from rollout.threads import in_background\n"
        f"in_background(lambda: connect(pathlib.Path({str(path)!r}), None), 'login')\n"
        f"while not (pathlib.Path({str(runs)!r}).exists() and"
        f" pathlib.Path({str(runs)!r}).read_text()): time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    wait_until(lambda: not is_running(int(runs.read_text())))


# No message shows a value that may be secret.


def shown(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except (KubeconfigError, ApiError) as error:
        return f"{error.message} {error.hint}"
    return ""


# Each field that is no name, path or address.
FIELDS: tuple[tuple[str, ...], ...] = (
    *((name,) for name in ("token", "username", "password", "as", "as-uid", "extensions")),
    *((name,) for name in ("as-groups", "as-user-extra", "auth-provider", "exec")),
    *((name,) for name in ("client-certificate-data", "client-key-data")),
    *(("exec", name) for name in ("args", "env", "apiVersion", "provideClusterInfo")),
    ("auth-provider", "config"),
    *(
        ("auth-provider", "config", name)
        for name in ("id-token", "refresh-token", "client-secret", "access-token", "cmd-args")
    ),
)


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
@pytest.mark.parametrize("name", ["oidc", "gcp", "azure"])
def test_no_message_shows_a_field_of_a_user(
    tmp_path: Path, path: tuple[str, ...], name: str
) -> None:
    file = tmp_path / "kubeconfig"
    for value in (MARKER, [MARKER], {"k": MARKER}, [{"name": MARKER}], f"{MARKER}\n{MARKER}ä"):
        content: object = value
        for key in reversed(path):
            content = {key: content}
        assert isinstance(content, dict)
        user: Json = {
            "exec": {"command": "no-such-login", "apiVersion": API_VERSION},
            "auth-provider": {"name": name, "config": {"id-token": MARKER}},
        }
        other = {"exec": "auth-provider", "auth-provider": "exec"}.get(path[0], "")
        user.pop(other, None)
        nested = {**user.get(path[0], {}), **content[path[0]]} if len(path) > 1 else value
        Kubeconfig(user={**user, path[0]: nested}).write(file)
        assert MARKER not in shown(lambda: connect(file, None))
        Kubeconfig(user=content).write(file)
        assert MARKER not in shown(lambda: connect(file, None, timeouts=QUICK).get("/x"))


@pytest.mark.parametrize(
    "cluster",
    [
        {"proxy-url": f"socks9://ann:{MARKER}@x"},
        {"proxy-url": f"http://ann:{MARKER} {MARKER}@127.0.0.1:1"},
        {"proxy-url": f"http://ann:{MARKER}@127.0.0.1:1"},
        {"proxy-url": f"http://ann:{MARKER}#@127.0.0.1:1"},
        {"proxy-url": f"ann:{MARKER}@127.0.0.1:1"},
        {"server": f"https://ann:{MARKER}@127.0.0.1:1"},
        {"server": f"https://ann:{MARKER} x@127.0.0.1:1"},
        {"server": f"ann:{MARKER}@127.0.0.1:1"},
        {"certificate-authority-data": MARKER},
        {"certificate-authority-data": base64.b64encode(MARKER.encode()).decode()},
        {"insecure-skip-tls-verify": MARKER},
        {"disable-compression": MARKER},
        {"extensions": MARKER},
        {"tls-server-name": [MARKER]},
    ],
)
def test_no_message_shows_a_secret_of_a_cluster(tmp_path: Path, cluster: Json) -> None:
    file = Kubeconfig(cluster=cluster).write(tmp_path / "kubeconfig")
    message = shown(lambda: connect(file, None, timeouts=QUICK).get("/x"))
    assert message
    assert MARKER not in message


@pytest.mark.parametrize(
    "value", [f"!{MARKER} x", f"*{MARKER}", f"&{MARKER} [", f"%{MARKER}", f"!!int {MARKER}"]
)
def test_no_message_shows_a_value_that_is_not_yaml(tmp_path: Path, value: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(f"users: [{{name: u, user: {{password: {value}}}}}]")
    message = shown(lambda: connect(file, None))
    assert "is not valid YAML" in message
    assert MARKER not in message


def test_no_message_shows_what_a_program_was_given(tmp_path: Path) -> None:
    user = program(
        tmp_path, "import os, sys; sys.exit(f'bad {sys.argv[1:]} {os.environ[\"KEY\"]} here')"
    )
    user["exec"] |= {
        "args": ["--client-secret", f"{MARKER}1", f"--refresh-token={MARKER}2"],
        "env": [{"name": "KEY", "value": f"{MARKER}3"}],
    }
    message = shown(lambda: connect(Kubeconfig(user=user).write(tmp_path / "kubeconfig"), None))
    assert "bad ['--client-secret', '***'" in message
    assert message.split(" Run")[0].endswith("here")
    assert MARKER not in message


def test_a_server_that_sends_a_replaced_token_back_is_not_quoted(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(MARKER)

    def script(exchange: Exchange) -> None:
        token.write_text("another")
        exchange.json({"kind": "Status", "message": f"not {MARKER}", "code": 400}, 400)

    with scripted(script) as server:
        config = Kubeconfig(server.url, user={"tokenFile": "token"})
        api = connect(config.write(tmp_path / "kubeconfig"), None, timeouts=QUICK)
        assert "not ***" in shown(lambda: api.get("/x"))
