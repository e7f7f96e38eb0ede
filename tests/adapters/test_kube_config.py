import json
import stat
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rollout.adapters.kube.api import connect
from rollout.errors import ApiError, ApiUnavailableError, KubeconfigError
from rollout.execution.base.deadline import is_transient
from tests.scripted_api import Exchange, Kubeconfig, scripted
from tests.waiting import is_running, wait_until

Json = dict[str, Any]

LOGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}


@pytest.fixture(autouse=True)
def _no_kubeconfig_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in (
        "KUBECONFIG",
        "KUBERNETES_SERVICE_HOST",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
    ):
        monkeypatch.delenv(name, raising=False)


def refused(path: Path | None, context: str | None = None) -> KubeconfigError:
    with pytest.raises(KubeconfigError) as caught:
        connect(path, context)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a: [", "is not valid YAML"),
        ("just text", "is not a kubeconfig"),
        ("contexts: [{context: {cluster: c}}]", "is not a kubeconfig"),
        ("apiVersion: v1", "has no current context"),
    ],
)
def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    error = refused(path)
    assert message in error.message
    assert str(path) in error.message
    assert error.hint


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    assert "there is no kubeconfig" in refused(tmp_path / "none").message
    assert "cannot be read" in refused(tmp_path).message


def without(section: str) -> Callable[[Json], None]:
    return lambda document: document.__setitem__(section, [])


def cluster(**values: Any) -> Callable[[Json], None]:
    return lambda document: document["clusters"][0]["cluster"].update(values)


def user(**values: Any) -> Callable[[Json], None]:
    return lambda document: document["users"][0].__setitem__("user", values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("clusters"), "specifies cluster 'c', which"),
        (without("users"), "specifies user 'u', which"),
        (without("contexts"), "has no context 'x'"),
        (lambda document: document["contexts"][0].update(context={}), "specifies no cluster"),
        (cluster(server=None), "has no server address"),
        (cluster(server="10.0.0.1:6443"), "'10.0.0.1:6443', which is not a URL"),
        (
            cluster(server="https://ann:s3cr3t#@10.0.0.1"),
            "a user and password in its server address",
        ),
        (
            cluster(server="https://ann:s3cr3t@10.0.0.1"),
            "a user and password in its server address",
        ),
        (cluster(**{"certificate-authority": "ca.crt"}), "ca.crt"),
        (
            cluster(**{"certificate-authority-data": "bm9uZQ=="}),
            "certificate authority of cluster 'c' of ",
        ),
        (user(**{"client-certificate": "me.crt", "client-key": "me.key"}), "me.crt"),
        (
            user(**{"client-certificate-data": "bm9uZQ==", "client-key-data": "bm9uZQ=="}),
            "client certificate or key of user 'u' of ",
        ),
        (user(tokenFile="token"), "token"),
        (
            user(
                exec={"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-login"}
            ),
            "no-such-login returned no credentials",
        ),
        (cluster(**{"proxy-url": "socks9://x"}), "cannot be used"),
    ],
)
def test_a_kubeconfig_that_cannot_work(
    tmp_path: Path, change: Callable[[Json], None], message: str
) -> None:
    document = Kubeconfig().document()
    change(document)
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    error = refused(path)
    assert message in error.message
    assert error.hint
    assert "s3cr3t" not in error.message


def test_another_identity_is_asked_for_as_kubectl_does(tmp_path: Path) -> None:
    user = {
        "token": "base",
        "as": "node-rebooter",
        "as-uid": "42",
        "as-groups": ["sre", "on-call"],
        "as-user-extra": {"example.org/Reason 100%": ["a night", "another"]},
    }
    with scripted(authorization) as server:
        connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None).get("/x")
    sent = server.exchanges[-1].headers
    assert sent["Authorization"] == "Bearer base"
    assert sent.get_all("Impersonate-User") == ["node-rebooter"]
    assert sent.get_all("Impersonate-Uid") == ["42"]
    assert sent.get_all("Impersonate-Group") == ["sre", "on-call"]
    extra = "Impersonate-Extra-example.org%2FReason%20100%25"
    assert sent.get_all(extra) == ["a night", "another"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"as-groups": ["sre"]}, "but no `as`"),
        ({"as-user-extra": {"reason": ["night"]}}, "but no `as`"),
        ({"as": "ann", "as-scopes": ["x"]}, "unknown field `as-scopes`"),
        ({"as": ["ann"]}, "`$.as`"),
        ({"as": "ann\nX-Evil: 1"}, "impersonates contains a line break"),
        ({"as": "ann\tlee"}, "impersonates contains a line break or another control character"),
        ({"as": "änn"}, "impersonates contains a non-ASCII character"),
        ({"as": " "}, "impersonates is empty"),
        (
            {"auth-provider": {"name": "exotic"}},
            "auth-provider 'exotic', which rollout does not support",
        ),
        ({"exec": {**LOGIN, "sandbox": True}}, "unknown field `sandbox`"),
        ({"exec": {**LOGIN, "interactiveMode": "Always"}}, "stdin is not a terminal"),
    ],
)
def test_a_user_that_is_not_understood_completely_is_refused(
    tmp_path: Path, entry: Json, message: str
) -> None:
    error = refused(Kubeconfig(user={"token": "t", **entry}).write(tmp_path / "kubeconfig"))
    assert message in error.message
    assert "user 'u'" in error.message


def test_users_of_other_contexts_may_have_fields_that_are_unknown_here(tmp_path: Path) -> None:
    with scripted(authorization) as server:
        document = Kubeconfig(server.url, user={"token": "mine"}).document()
        document["users"].append({"name": "other", "user": {"invented-next-year": True}})
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document))
        assert json.loads(connect(path, None).get("/x")) == {"authorization": "Bearer mine"}


def counted_logins(tmp_path: Path, lifetime: timedelta) -> tuple[Json, Path]:
    """A program whose tokens live that long, and the file that has a line for each of its runs."""
    runs = tmp_path / "runs"
    expiry = (datetime.now(UTC) + lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = f"open({str(runs)!r}, 'a').write('run\\n'); " + credential(
        token="t", expirationTimestamp=expiry
    )
    return program(tmp_path, body), runs


@pytest.mark.parametrize("minutes", [60, 4, -1])
def test_credentials_are_used_for_most_of_their_lifetime(tmp_path: Path, minutes: int) -> None:
    """However short that is, and where the clock here is ahead of the one that stamped them."""
    user, runs = counted_logins(tmp_path, timedelta(minutes=minutes))
    with scripted(authorization) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
        for _ in range(5):
            api.get("/x")
    assert runs.read_text().splitlines() == ["run"]


def test_credentials_are_renewed_before_they_expire(tmp_path: Path) -> None:
    user, runs = counted_logins(tmp_path, timedelta(seconds=3))
    with scripted(authorization) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)

        def is_renewed() -> bool:
            api.get("/x")
            return len(runs.read_text().splitlines()) > 1

        wait_until(is_renewed)


def test_an_unknown_context_lists_the_known_ones(tmp_path: Path) -> None:
    error = refused(Kubeconfig().write(tmp_path / "kubeconfig"), "y")
    assert "has no context 'y'" in error.message
    assert error.hint == "Specify a context with --context: x."


def program(tmp_path: Path, body: str) -> Json:
    path = tmp_path / "login"
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "interactiveMode": "Never",
        }
    }


def credential(**status: str) -> str:
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    }
    return f"print({json.dumps(answer)!r})"


def authorization(exchange: Exchange) -> None:
    exchange.json({"authorization": exchange.headers["Authorization"]})


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("import sys; sys.exit('log in first')", "log in first"),
        (
            (
                "import sys; sys.exit('\\n'.join(('v2 is out', *'abc', 'log in first', 'Warning:"
                " old')))"
            ),
            ": log in first",
        ),
        ("print('hello')", "not an ExecCredential"),
        (credential(), "neither a token nor a certificate"),
    ],
)
def test_a_login_program_that_fails_is_told_with_its_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], body: str, text: str
) -> None:
    config = Kubeconfig(user=program(tmp_path, body))
    error = refused(config.write(tmp_path / "kubeconfig"))
    assert "returned no credentials" in error.message
    assert text in error.message
    assert capfd.readouterr() == ("", "")


def failing_later(tmp_path: Path) -> tuple[Json, Path, Path]:
    """A program whose tokens are t1, t2, …; the file of its runs, and the one that makes it fail
    while it is there.
    """
    runs = tmp_path / "runs"
    down = tmp_path / "down"
    body = (
        f"import json, pathlib, sys; p = pathlib.Path({str(runs)!r}); n = int(p.read_text()) + 1 if"
        f" p.exists() else 1; p.write_text(str(n)); pathlib.Path({str(down)!r}).exists() and"
        " sys.exit('no such host'); print(json.dumps({'apiVersion':"
        " 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential', 'status': {'token':"
        " f't{n}'}}))"
    )
    return program(tmp_path, body), runs, down


def the_first_has_expired(exchange: Exchange) -> None:
    expired = exchange.headers["Authorization"] == "Bearer t1"
    exchange.json(
        {"kind": "Status", "message": "Unauthorized", "code": 401}, 401 if expired else 200
    )


def test_a_login_that_fails_in_the_middle_of_a_run_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage that the program's own server shared, or until somebody has logged in
    anew.
    """
    monkeypatch.setattr("rollout.adapters.kube.session._LOGIN_PAUSE", 0)
    user, _, down = failing_later(tmp_path)
    with scripted(the_first_has_expired) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
        down.touch()
        with pytest.raises(
            ApiUnavailableError, match=r"cannot be renewed: .* no such host"
        ) as caught:
            api.create("/x", {})
        assert caught.value.status == 401
        assert is_transient(caught.value)
        down.unlink()

        # A failed login is not repeated for as long as it took.
        def is_accepted() -> bool:
            with suppress(ApiUnavailableError):
                return bool(api.create("/x", {}))
            return False

        wait_until(is_accepted)
        assert server.exchanges[-1].headers["Authorization"] == "Bearer t3"


def test_a_new_login_keeps_the_context_that_was_current_at_first(tmp_path: Path) -> None:
    """As when somebody works on another cluster meanwhile, and switches the kubeconfig's context."""
    user, _, _ = failing_later(tmp_path)
    with scripted(the_first_has_expired) as server, scripted(authorization) as other:
        document = Kubeconfig(server.url, user=user).document()
        document["clusters"].append({"name": "d", "cluster": {"server": other.url}})
        document["contexts"].append({"name": "y", "context": {"cluster": "d", "user": "u"}})
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(document))
        api = connect(path, None)
        path.write_text(json.dumps({**document, "current-context": "y"}))
        api.create("/x", {})
        assert server.exchanges[-1].headers["Authorization"] == "Bearer t2"
        assert other.exchanges == []


@pytest.mark.parametrize("context", [None, "x"])
def test_a_new_login_never_leads_to_another_server(tmp_path: Path, context: str | None) -> None:
    user, _, _ = failing_later(tmp_path)
    with scripted(the_first_has_expired) as server, scripted(authorization) as other:
        path = Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig")
        api = connect(path, context)
        Kubeconfig(other.url, user=user).write(path)
        with pytest.raises(ApiUnavailableError, match="now points to another API server") as caught:
            api.create("/x", {})
        assert other.url in caught.value.message
        assert server.url in caught.value.hint
        assert other.exchanges == []


@pytest.mark.parametrize(("mode", "gets"), [("Never", "nothing"), ("IfAvailable", "our stdin")])
def test_a_program_gets_our_stdin_only_where_it_may_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, gets: str
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    # What gets no stdin of ours is started in a session of its own, which has no terminal either.
    body = (
        "import json, os; gets = 'nothing' if os.getsid(0) == os.getpid() else 'our stdin';"
        " print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind':"
        " 'ExecCredential', 'status': {'token': gets}}))"
    )
    user = program(tmp_path, body)
    user["exec"]["interactiveMode"] = mode
    with scripted(authorization) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
        assert json.loads(api.get("/x")) == {"authorization": f"Bearer {gets}"}


def test_a_program_without_our_stdin_is_told_that_nobody_can_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    body = (
        "import json, os; told ="
        " json.loads(os.environ['KUBERNETES_EXEC_INFO'])['spec']['interactive'];"
        " print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind':"
        " 'ExecCredential', 'status': {'token': str(told)}}))"
    )
    with scripted(authorization) as server:
        api = connect(
            Kubeconfig(server.url, user=program(tmp_path, body)).write(tmp_path / "kubeconfig"),
            None,
        )
        assert json.loads(api.get("/x")) == {"authorization": "Bearer False"}


def test_the_files_of_kubeconfig_are_merged_and_the_first_current_context_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted(authorization) as server:
        first = Kubeconfig(server.url, user={"token": "first"}).write(tmp_path / "first")
        document = Kubeconfig(server.url).document()
        document["contexts"] = [{"name": "other", "context": {"cluster": "c", "user": "v"}}]
        document["users"] = [{"name": "v", "user": {"token": "second"}}]
        document["current-context"] = "other"
        second = tmp_path / "second"
        second.write_text(json.dumps(document))
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{first}:{second}")
        assert json.loads(connect(None, None).get("/x")) == {"authorization": "Bearer first"}
        assert json.loads(connect(None, "other").get("/x")) == {"authorization": "Bearer second"}


def test_files_beside_the_kubeconfig_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "token").write_text("beside")
    with scripted(authorization) as server:
        path = Kubeconfig(server.url, user={"tokenFile": "token"}).write(folder / "kubeconfig")
        monkeypatch.chdir(tmp_path)
        assert json.loads(connect(Path("deep/kubeconfig"), None).get("/x")) == {
            "authorization": "Bearer beside"
        }
        assert json.loads(connect(path, None).get("/x")) == {"authorization": "Bearer beside"}


def test_in_a_pod_the_service_account_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "token"
    monkeypatch.setattr("rollout.adapters.kube.kubeconfig.SERVICE_ACCOUNT", account)
    account.write_text("in-pod")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert "the pod's service account" in refused(None, "some").message
    assert "the pod's service account cannot be used" in refused(None).message


@pytest.mark.parametrize("proxy", ["ftp://127.0.0.1:1", "::::", "socks5://127.0.0.1:1"])
def test_a_proxy_of_the_environment_that_cannot_be_used_is_not_the_kubeconfigs(
    proxy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    with warnings.catch_warnings(record=True) as warned:
        assert (
            "the proxy of the environment"
            in refused(Kubeconfig("https://api.invalid").write(tmp_path / "k")).message
        )
    assert not warned


def test_a_login_that_has_just_failed_is_not_repeated_for_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollout.adapters.kube.session._LOGIN_PAUSE", 600)
    user, runs, down = failing_later(tmp_path)
    with scripted(the_first_has_expired) as server:
        api = connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
        down.touch()
        for _ in range(5):
            with pytest.raises(ApiUnavailableError, match="no such host"):
                api.create("/x", {})
    assert runs.read_text() == "2"


def test_credentials_that_cannot_be_renewed_end_in_an_api_error(tmp_path: Path) -> None:
    with scripted(lambda exchange: exchange.answer(401, b"")) as server:
        path = Kubeconfig(server.url).write(tmp_path / "kubeconfig")
        api = connect(path, None)
        path.unlink()
        with pytest.raises(ApiError, match="there is no kubeconfig") as caught:
            api.get("/x")
    assert caught.value.status == 401


# A program that logs in and does not respond: it costs the wait for it once, and never a night.


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.adapters.kube.credentials.LOGIN_LIMIT", 2.0)


def hanging(tmp_path: Path) -> tuple[Json, Path]:
    """A program that waits for one of its own for ever; and the file of that one's number."""
    runs = tmp_path / "runs"
    body = (
        "import pathlib, subprocess; child = subprocess.Popen(['sleep', '600']); "
        f"pathlib.Path({str(runs)!r}).write_text(str(child.pid)); child.wait()"
    )
    return program(tmp_path, body), runs


@pytest.mark.usefixtures("_short")
def test_a_login_that_hangs_is_ended_and_told(tmp_path: Path) -> None:
    user, runs = hanging(tmp_path)
    with (
        scripted(authorization) as server,
        pytest.raises(KubeconfigError, match="it did not finish within 2s"),
    ):
        connect(Kubeconfig(server.url, user=user).write(tmp_path / "kubeconfig"), None)
    # what it has started is ended with it
    wait_until(lambda: not is_running(int(runs.read_text())))
