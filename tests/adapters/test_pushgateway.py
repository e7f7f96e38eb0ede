"""What is sent to a Pushgateway, and what is never shown."""

from base64 import b64decode

import pytest

from rollout.adapters.metrics import Pushgateway, PushgatewayError
from rollout.report.metrics.instruments import Metrics
from tests.apply.test_metrics import gateway


@pytest.mark.parametrize(
    ("written", "sent"), [("ops:plain", "ops:plain"), ("ops:p%40ss%2Fword", "ops:p@ss/word"), ("ops:p@ss", "ops:p@ss")]
)
def test_a_login_is_sent_as_it_was_meant(written: str, sent: str) -> None:
    with gateway() as pushed:
        push(pushed.url.replace("://", f"://{written}@"))
    (login,) = pushed.logins
    assert b64decode((login or "").removeprefix("Basic ")).decode() == sent


def test_an_answer_that_repeats_the_password_is_told_without_it() -> None:
    with gateway(400) as pushed, pytest.raises(PushgatewayError) as caught:
        push(pushed.url.replace("://", "://ops:correct-horse-battery@"))
    assert caught.value.message == "it answers 400: no, not with ***"


def test_a_redirect_takes_the_login_nowhere() -> None:
    with gateway() as elsewhere, gateway(307, location=elsewhere.url) as pushed:
        with pytest.raises(PushgatewayError, match="it answers 307"):
            push(pushed.url.replace("://", "://ops:correct-horse-battery@"))
        assert elsewhere.logins == set()


def push(url: str) -> None:
    metrics = Metrics("here")
    Pushgateway(url, "here").push(metrics, metrics.last_success(), is_whole=True)
