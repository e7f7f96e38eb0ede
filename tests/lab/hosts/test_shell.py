"""The hosts' shell, held against the real one of this machine wherever both can run the same script."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from rollout.lab.hosts.machine import Machine

Ask = Callable[..., Any]

# No program but the shell's own: the same result on any host.
SAME = {
    "words": "echo a  b   c",
    "quotes": """echo 'a  b' "c  d" e\\ f "g'h" 'i"j' ''""",
    "double quote escapes": r'echo "a\"b" "\$x" "c\\d"',
    "assignment": 'x=1; y="$x 2"; echo $x "$y" ${x}3 ${x}',
    "assignment from parts": """a=b'c d'"e"; echo "$a" """,
    "field splitting": 'x=" a  b "; echo [$x] ["$x"]; for w in $x; do echo "<$w>"; done',
    "splitting beside text": 'x=" a b "; for w in p${x}q; do echo "<$w>"; done',
    "empty expansion is no word": "x=; set -- a $x b; echo $#",
    "quoted empty is a word": 'x=; set -- a "$x" b; echo $#',
    "all parameters": 'f() { for a in "$@"; do echo "<$a>"; done; echo $#; }; f "a b" c ""',
    "status": "false; echo $?; true; echo $?; (exit 3); echo $?",
    "status of assignment": "false; x=$?; echo $x; x=$(exit 4); echo $?; x=$(true)$(false); echo $?",
    "and or": "true && echo a || echo b; false && echo c || echo d; false || true && echo e",
    "negation": "! false && echo a; ! true || echo b",
    "if": "if true; then echo a; fi; if false; then echo b; else echo c; fi",
    "elif": "x=2; if [ $x = 1 ]; then echo one; elif [ $x = 2 ]; then echo two; else echo many; fi; echo $?",
    "if without a taken branch": "if false; then echo a; fi; echo $?",
    "for": "for i in 1 2 3; do echo $i; done; echo $i",
    "for over lines": "for i in a b\ndo\n  echo $i\ndone",
    "break and continue": (
        "for i in 1 2 3 4; do if [ $i = 2 ]; then continue; fi; if [ $i = 4 ]; then break; fi; echo $i; done"
    ),
    "while": 'x=; while [ "$x" != aaa ]; do x=${x}a; echo $x; done',
    "until": 'x=; until [ "$x" = aa ]; do x=${x}a; done; echo $x',
    "case": "for w in abc b d ''; do case $w in a*) echo A;; b|c) echo B;; '') echo empty;; *) echo other;; esac; done",
    "case with quoted pattern": "case 'a*' in 'a*') echo exact;; esac; case ab in 'a*') echo no;; *) echo yes;; esac",
    "case without match": "false; case x in y) echo a;; esac; echo $?",
    "function": "f() { echo $1 $2; return 3; }; f a b; echo $?",
    "function sees and sets variables": "x=1; f() { echo $x; x=2; }; f; echo $x",
    "subshell keeps to itself": "x=1; (x=2; echo $x); echo $x",
    "group shares": "x=1; { x=2; echo $x; }; echo $x",
    "substitution": 'echo "[$(echo a; echo b)]"; echo [$(echo c; echo d)]; echo `echo e`',
    "nested substitution": 'echo "$(echo "$(echo "x y")")"; echo $(case a in a) echo yes;; esac)',
    "substitution trims newlines": 'x=$(printf "a\\n\\n\\n"); echo "[$x]"',
    "substitution forks": "x=1; y=$(x=2; echo $x); echo $x $y",
    "default values": 'echo ${x:-a} ${x-b} "${x:-c d}"; x=; echo ${x:-e} [${x-f}]; x=1; echo ${x:-g} ${x:+h}',
    "assigning default": "echo ${x:=a}; echo $x",
    "trimming": "p=/a/b.tar.gz; echo ${p##*/} ${p#*/} ${p%.*} ${p%%.*}; echo ${p%/*}",
    "redirections": "echo a >/dev/null; echo b 2>/dev/null; echo c 1>&2 2>/dev/null; { echo d; nosuch; } 2>/dev/null",
    "errors into the output": "{ echo a; echo b >&2; } 2>&1",
    "reading": 'printf "a b c\\nd\\n" | while read x y; do echo "$x|$y"; done',
    "reading raw lines": 'printf " a b \\n" | while IFS= read -r line; do echo "[$line]"; done',
    "pipeline status": "true | false; echo $?; false | true; echo $?",
    "pipeline forks": "x=1; echo a | x=2; echo $x",
    "printf": "printf '%s-%s\\n' a b c; printf '%d|%5d|%-3s|\\n' 7 8 x; printf 'no newline'",
    "printf without words": "printf '%s|\\n'; printf 'plain\\n'; printf '100%%\\n'",
    "test strings": "[ a = a ] && echo 1; [ a != b ] && echo 2; [ -z '' ] && echo 3; [ -n a ]; [ a ] && echo 5",
    "test numbers": "[ 2 -gt 1 ] && [ 1 -le 1 ] && [ 3 -ne 4 ] && echo yes; [ 10 -lt 9 ] || echo no",
    "test joined": "[ a = a -a b = b ] && echo 1; [ a = b -o b = b ] && echo 2; [ ! a = b ] && echo 3",
    "test of nothing": "[ ] || echo empty; [ '' ] || echo blank; test x && echo word",
    "exit": "echo a; exit 4; echo b",
    "exit without a number": "(exit 5); exit",
    "exit in a function": "f() { exit 6; }; f; echo no",
    "errexit": "set -e; false || echo caught; if false; then :; fi; ! true; echo on; false; echo no",
    "errexit in and": "set -e; false && true; echo on",
    "nounset": "set -u; echo ${x:-a}; echo $x; echo no",
    "eval": "x='echo a; echo b'; eval \"$x\"; eval 'y=3'; echo $y",
    "shift and set": "set -- a b c; shift; echo $1 $#; set -- x; echo $1",
    "shift by more": "f() { shift 2; echo $1 $#; }; f a b c d",
    "unset": "x=1; unset x; echo [${x-gone}]",
    "temporary assignment": "x=1; f() { echo $x; }; x=2 f; :; echo a",
    "comments": "echo a # b\n# echo c\necho d#e",
    "line continuation": "echo a \\\n  b; true &&\n  echo c |\n  while read x; do echo $x; done",
    "background": "true & echo a; (exit 3) & echo $?",
    "colon and true": ": a b; echo $?; true; echo $?",
    "command builtin": "echo() { printf 'no\\n'; }; command echo yes",
    "lists in conditions": "if false; true; then echo a; fi; while echo once; false; do :; done",
    "nested": "f() { if [ $1 = 0 ]; then echo end; else echo $1; f 0; fi; }; f 1",
    "compound in a pipeline": "for i in 1 2; do echo $i; done | { read a; read b; echo $b $a; }",
    "dollar alone": 'echo $ a$ "$"',
    "hash and dollar parameters": 'set -- a b; echo $# $1$2 "$*"',
}


@pytest.mark.parametrize("script", SAME.values(), ids=SAME.keys())
def test_does_what_the_real_shell_does(script: str, machine: Machine, ask: Ask) -> None:
    real = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=10, check=False)

    answer = ask(machine, script)

    assert (answer.out, answer.status == 0) == (real.stdout, real.returncode == 0)
    # Shells differ in the status of a shell error (1 or 2), not in statuses that the script chose.
    assert real.returncode in {answer.status, 2}


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("nosuch", "bash: line 1: nosuch: command not found\n"),
        ("echo a\n\nnosuch -x", "bash: line 3: nosuch: command not found\n"),
        ("/usr/bin/nosuch", "bash: line 1: /usr/bin/nosuch: No such file or directory\n"),
    ],
)
def test_unknown_commands_are_127(script: str, complaint: str, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, script)

    assert (answer.status, answer.err) == (127, complaint)


def test_a_shell_started_as_sh_names_itself_so(machine: Machine, ask: Ask) -> None:
    assert ask(machine, "sh -c nosuch").err == "sh: line 1: nosuch: command not found\n"


@pytest.mark.parametrize(
    ("script", "near"),
    [
        ("if then", "near unexpected token `then'"),
        ("echo a)", "near unexpected token `)'"),
        ("for i in a; echo", "near unexpected token `echo'"),
        ("done", "near unexpected token `done'"),
        ("echo 'a", "unexpected end of file"),
        ("if true; then echo a", "unexpected end of file"),
        ("cat <<EOF\na\nEOF", "near unexpected token `<<'"),
        ("echo $((1 + 1))", "near unexpected token `$(('"),
    ],
)
def test_syntax_errors_run_nothing(script: str, near: str, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, script)

    assert (answer.status, answer.out) == (2, "")
    assert near in answer.err


def test_both_outputs_can_be_redirected_at_once(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, "{ echo a; nosuch; } &>/tmp/both; cat /tmp/both")

    assert answer.out == "a\nbash: line 1: nosuch: command not found\n"


def test_an_unquoted_star_stands_for_the_files_that_it_matches(machine: Machine, ask: Ask) -> None:
    made = "d=/tmp; echo b >/tmp/b.toml; echo a >/tmp/a.toml; echo c >/tmp/c.txt; "
    assert ask(machine, made + 'for f in "$d"/*.toml; do cat "$f"; done').out == "a\nb\n"
    assert ask(machine, "echo /*/a.toml '/x/*.toml' /x/*.none *").out == "/tmp/a.toml /x/*.toml /x/*.none *\n"  # noqa: S108


def test_files_are_written_and_appended(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, "echo a >/tmp/x; echo b >>/tmp/x; cat </tmp/x; echo c >/tmp/x; cat /tmp/x")

    assert answer.out == "a\nb\nc\n"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("echo a >/etc/x", "/etc/x: Permission denied"),
        ("cat </nope", "/nope: No such file or directory"),
        ("echo a >&7", "7: Bad file descriptor"),
        ("echo a >/usr", "/usr: Permission denied"),
    ],
)
def test_bad_redirections_fail_the_command_only(script: str, complaint: str, machine: Machine, ask: Ask) -> None:
    answer = ask(machine, f"{script}; echo $?; echo on")

    assert answer.out == "1\non\n"
    assert complaint in answer.err


def test_a_script_can_come_on_standard_input(machine: Machine, ask: Ask) -> None:
    assert ask(machine, "sh -s a b", stdin="echo $2 $1\nexit 3\n") == ask(machine, "echo b a; exit 3")


def test_command_v_tells_what_is_there(machine: Machine, ask: Ask) -> None:
    answer = ask(machine, "command -v busctl cd nosuch; command -v nosuch || echo none; command -v exit")

    assert answer.out == "/usr/bin/busctl\nnone\nexit\n"


def test_pipefail_reports_the_failing_stage(machine: Machine, ask: Ask) -> None:
    assert ask(machine, "set -o pipefail; (exit 3) | cat; echo $?").out == "3\n"
