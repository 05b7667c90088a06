# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB's defaults as a shell reads them, without running it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model import shell_values
from hypothesis import HealthCheck, example, given, settings, strategies as st


def values(*texts):
    result = shell_values.evaluate([("file%d" % number, text) for number, text in enumerate(texts)])
    return {name: shell_values.flat(pieces)[0] for name, pieces in result["values"].items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("X=a", "a"),
        ("X=", ""),
        ('X="a b"  # note', "a b"),
        ("X='a $Y b'", "a $Y b"),
        ('Y=1\nX="a $Y ${Y}2"', "a 1 12"),
        ("X=a#b", "a#b"),
        ("# X=a\nX=b", "b"),
        ('X="a\\\nb"', "ab"),
        ("X=a\\\nb", "ab"),
        ('X="two\nlines"', "two\nlines"),
        ("X=a; X=b", "b"),
        ("export X=a", "a"),
        ("  X=a", "a"),
        ('X="a"\nX+=" b"', "a b"),
        ('X+="b"', "b"),
        ('X="\\$tuned_params"', "$tuned_params"),
        ('X="a\\"b"', 'a"b'),
        ('X="a\\nb"', "a\\nb"),
        ('X="${Y:-d} ${Y-d}"', "d d"),
        ('Y=\nX="${Y:-d} ${Y-d}"', "d "),
        ('X="${X:+$X }new"', "new"),
        ('X=old\nX="${X:+$X }new"', "old new"),
        ("X=a'b'\"c\"d", "abcd"),
        ("X=0\nX=1 true\n", "0"),
        ("X=$", "$"),
    ],
)
def test_values(text, value):
    assert values(text)["X"] == value


def test_a_value_keeps_the_file_of_each_piece():
    result = shell_values.evaluate(
        [
            ("grub", 'X="quiet splash"\n'),
            ("cloud", 'X="console=ttyS0"\n'),
            ("own", 'X="$X nosmt"\n'),
            ("later", 'X="pre=1 ${X} isolcpus=$Y"\n'),
        ]
    )
    found = [(token["text"], token["owner"]) for token in shell_values.tokens(result["values"]["X"])]
    assert found == [("pre=1", "later"), ("console=ttyS0", "cloud"), ("nosmt", "own"), ("isolcpus=", "later")]


def test_what_grub_puts_in_at_boot_belongs_to_its_owner():
    result = shell_values.evaluate([("grub", 'X="quiet"\nX="${X:+$X }\\$tuned_params"\n')])
    found = shell_values.tokens(result["values"]["X"], {"tuned_params": [("nohz=on isolcpus=2", "tuned")]})
    assert [(token["text"], token["owner"]) for token in found] == [
        ("quiet", "grub"),
        ("nohz=on", "tuned"),
        ("isolcpus=2", "tuned"),
    ]


@pytest.mark.parametrize("text", ['X="a', "X='a", "X=`a", "X=$(a", "X=${a", 'X="${a:+b"', 'X="${a:+${a:+"'])
def test_text_that_a_shell_refuses_is_told(text):
    result = shell_values.evaluate([("grub", "Y=1\n" + text)])
    assert result["broken"] == ["grub"]
    assert result["problems"][0][0] == "grub"
    assert "line 2" in result["problems"][0][1]
    assert shell_values.flat(result["values"]["Y"])[0] == "1"


@pytest.mark.parametrize(
    "text",
    [
        "if [ -f /x ]; then X=a; fi",
        "[ -f /x ] && X=a; (X=b)",
        "[ -f /x ] && X=a",
        "true || X=a",
        ". /etc/other",
        "unset X",
    ],
)
def test_what_only_a_shell_knows_is_told(text):
    result = shell_values.evaluate([("grub", text)])
    assert result["problems"]
    assert not result["broken"]


def test_a_value_from_a_command_is_unknown_until_it_is_assigned_anew():
    text = "D=`( . /etc/os-release; echo ${NAME:-Debian} ) 2>/dev/null || echo Debian`\nX=$(cat /x)\n"
    assert shell_values.evaluate([("a", text)])["unknown"] == {"D": "a", "X": "a"}
    assert shell_values.evaluate([("a", text), ("b", "X=1\n")])["unknown"] == {"D": "a"}


def test_a_doubling_value_is_bounded():
    result = shell_values.evaluate([("bomb", "X=ab\n" + 'X="$X$X"\n' * 60)])
    assert len(shell_values.flat(result["values"]["X"])[0]) <= shell_values.MAX_VALUE
    assert any("grows beyond" in sentence for _path, sentence in result["problems"])


def test_deep_nesting_is_refused_without_a_traceback():
    assert shell_values.evaluate([("deep", "A=1\nX=" + "${A:+" * 5000)])["broken"] == ["deep"]


SHELLS = [path for path in (shutil.which("dash"), shutil.which("bash")) if path]
WORD = st.text(alphabet="ab =,-_.:/", max_size=6)
PART = st.one_of(
    WORD.map(lambda text: '"%s"' % text),
    WORD.map(lambda text: "'%s'" % text),
    st.sampled_from(
        ["a", "b=1", "\\ ", "\\\\", "\\$", "$A", "${B}", '"$A"', '"${B}"', "${A:+x}", '"${A:+$A }"', '"${B:-y}"']
    ),
    st.sampled_from(
        ['"\\$p"', '"\\""', '"\\a"', "${C-z}", '"${C+z $B}"', "\\\n", '"\\\n"', '"a\'b"', "'a\"b'", '"${A:+"q r"}"']
    ),
)
ASSIGNMENT = st.tuples(st.sampled_from("ABC"), st.lists(PART, max_size=4)).map(
    lambda pair: "%s=%s" % (pair[0], "".join(pair[1]))
)
LINE = st.one_of(
    ASSIGNMENT,
    ASSIGNMENT.map(lambda text: text + " # note"),
    ASSIGNMENT.map(lambda text: "export " + text),
    st.just("# c"),
)


@pytest.mark.skipif(not SHELLS, reason="neither dash nor bash is here to compare with")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINE, max_size=6), st.sampled_from(SHELLS or ["sh"]))
@example(["A=a", 'A="${A:+$A }\\$tuned_params"'], SHELLS[0] if SHELLS else "sh")
def test_the_same_as_a_shell(lines, shell):
    text = "\n".join(lines) + "\n"
    script = text + 'printf "%s\\0" "$A" "$B" "$C"\n'
    ran = subprocess.run([shell, "-c", script], env={}, capture_output=True, check=False)
    if ran.returncode:
        return  # `export A=a b=1` with another meaning of a word
    told = ran.stdout.decode().split("\0")[:3]
    read = values(text)
    assert [read.get(name, "") for name in "ABC"] == told, text


@given(st.lists(st.text(max_size=60), max_size=3))
@example(['X="$', "${", "`"])
@example(["X=${A:+\\"])
def test_any_text_is_read_without_a_traceback(texts):
    result = shell_values.evaluate([(str(number), text) for number, text in enumerate(texts)])
    for pieces in result["values"].values():
        for token in shell_values.tokens(pieces, {}):
            assert token["owner"] in {str(number) for number in range(3)}


@given(st.text(alphabet="X=+\"'$\\{}:-( )`#;&|\nab<>", max_size=80))
def test_text_made_of_signs_is_read_without_a_traceback(text):
    shell_values.evaluate([("a", text), ("b", text)])
