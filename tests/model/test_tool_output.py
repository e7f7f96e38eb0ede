import pytest

from rollout.model.tool_output import last_line

POST_QUANTUM = """\
** WARNING: connection is not using a post-quantum key exchange algorithm.
** This session may be vulnerable to "store now, decrypt later" attacks.
** The server may need to be upgraded. See https://openssh.com/pq.html
"""
REASON = "Could not connect to the update engine: permission denied"


@pytest.mark.parametrize(
    "text",
    [
        f"E0813 10:11:12.345678  1234 client.cc:123] {REASON}",
        f"[0813/101112.345678:ERROR:client.cc(123)] {REASON}",
        f"2027-08-13T10:11:12.345678Z ERROR update_engine_client: [client.cc:123] {REASON}",
        f"Aug 13 10:11:12 worker-1 update_engine[77]: {REASON}",
        f'time="2027-08-13T10:11:12Z" level=error msg="{REASON}"',
        f"<3>{REASON}",
    ],
)
def test_the_reason_is_kept_whatever_stands_before_it(text: str) -> None:
    assert REASON in last_line(text)


@pytest.mark.parametrize(
    "before",
    [
        "** Authorized use only. Sessions time out. **\n*****\n",
        "[WARNING]: something is deprecated\n",
        "Warning: Permanently added 'worker-1' (ED25519) to the list of known hosts.\r\n",
    ],
)
def test_what_stands_on_earlier_lines_does_not_hide_it(before: str) -> None:
    assert last_line(before + REASON) == REASON


@pytest.mark.parametrize(
    "after",
    [
        "\n\n-----\n",
        "\r\nConnection to worker-1 closed.\r\n",
        "\nConnection closed by UNKNOWN port 65535",
        "\nI0813 10:11:13.345678  1234 client.cc:200] exiting",
        "\n[0813/101113.345678:INFO:client.cc(200)] exiting",
        '\ntime="2027-08-13T10:11:12Z" level=info msg="exiting"',
    ],
)
def test_what_is_said_in_passing_afterwards_is_no_reason(after: str) -> None:
    assert last_line(REASON + after) == REASON


@pytest.mark.parametrize(
    "warning",
    [
        "Warning: Permanently added 'worker-1' (ED25519) to the list of known hosts.",
        "WARNING: the option --old is ignored",
        "[WARNING]: Platform linux on host worker-1 is using the discovered interpreter",
        "\x1b[1;35m[WARNING]: Platform linux on host worker-1 is using another interpreter\x1b[0m",
        "[DEPRECATION WARNING]: this feature is removed in 2.23",
        POST_QUANTUM,
        "/usr/lib/python3/x.py:12: DeprecationWarning: 'crypt' is deprecated\n  import crypt",
        "bash: warning: setlocale: LC_ALL: cannot change locale (en_US.UTF-8)",
        "perl: warning: Please check that your locale settings:\n\tLC_ALL = (unset)",
        "W0813 10:11:13.345678  1234 client.cc:200] slow disk",
        "2027-08-13T10:11:13Z WARN client: slow disk",
        'time="2027-08-13T10:11:12Z" level=warning msg="slow disk"',
    ],
)
def test_a_warning_after_the_reason_does_not_hide_it(warning: str) -> None:
    assert last_line(f"{REASON}\n{warning}\n") == REASON


def test_a_warning_is_shown_when_there_is_nothing_else() -> None:
    assert last_line("Warning: the disk is full\nINFO done\n") == "Warning: the disk is full"


def test_an_error_about_a_warning_is_no_warning() -> None:
    assert (
        last_line(f"{REASON}\ncannot write a warning: disk full")
        == "cannot write a warning: disk full"
    )


def test_the_count_of_bad_options_is_no_reason() -> None:
    option = "/home/ann/.ssh/config: line 2: Bad configuration option: foobar"
    assert (
        last_line(f"{option}\n/home/ann/.ssh/config: terminating, 1 bad configuration options\n")
        == option
    )


def test_what_is_said_in_passing_is_shown_when_there_is_nothing_else() -> None:
    assert (
        last_line("[0813/101113.3:INFO:client.cc(200)] gave up")
        == "[0813/101113.3:INFO:client.cc(200)] gave up"
    )


def test_a_prefix_alone_is_shown_rather_than_nothing() -> None:
    assert last_line("E0813 10:11:12.345678  1234 client.cc:123]").startswith("E0813")


def test_nothing_is_said() -> None:
    assert last_line("\n---\n  \n") == ""


def test_a_long_line_keeps_its_end() -> None:
    shown = last_line(f"{'at /some/place: ' * 100}{REASON}")
    assert shown.endswith(REASON)
    assert len(shown) <= 160


def test_terminal_escapes_are_left_out() -> None:
    assert last_line(f"\x1b[31m{REASON}\x1b[0m") == REASON
