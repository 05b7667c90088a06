# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is written is YAML of the same meaning, and what is read means what a YAML library says, or is said to be unknown."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.lo0.rke2_hostprep.plugins.module_utils.model.yaml_text import OPAQUE, read, write
from hypothesis import given, strategies as st

WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "yes",
        "No",
        "on",
        "~",
        "null",
        "0-1",
        "1e3",
        "0x1",
        "12:30:45",
        "2026-01-01",
        "- a",
        "a: b",
        "a #b",
        "=",
        "<<",
        "",
        " x ",
    ]
)
SCALARS = WORDS | st.booleans() | st.integers(-(10**9), 10**9) | st.none()
KEYS = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,10}", fullmatch=True)
VALUES = SCALARS | st.lists(SCALARS, max_size=4) | st.dictionaries(KEYS, SCALARS, max_size=4)


@given(
    st.dictionaries(
        WORDS, SCALARS | st.lists(SCALARS | st.dictionaries(WORDS, SCALARS)) | st.dictionaries(WORDS, SCALARS)
    )
)
def test_what_is_written_is_yaml(mapping):
    assert yaml.safe_load(write(mapping, ["a comment"])) == (mapping or None)


@given(st.dictionaries(KEYS, VALUES))
def test_what_is_written_is_read_again(mapping):
    found = read(write(mapping))
    assert list(found) == list(mapping)
    for key, value in mapping.items():
        assert found[key] is OPAQUE or found[key] == value


@given(st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,9}", fullmatch=True), VALUES, min_size=1), st.booleans())
def test_files_of_a_library_are_read(mapping, flow):
    text = yaml.safe_dump(mapping, default_flow_style=flow, width=10**6, allow_unicode=True)
    try:
        found = read(text)
    except ValueError:
        return
    for key, value in yaml.safe_load(text).items():
        assert found[key] is OPAQUE or found[key] == value or str(value) == str(found[key])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("---\ncni: cilium # why\n", {"cni": "cilium"}),
        ("# of the site\n--- # RKE2\ncni: cilium\n", {"cni": "cilium"}),
        ("cni:\n- multus\n- cilium\n", {"cni": ["multus", "cilium"]}),
        ("cni:\n  - multus # first\n\n  # second\n  - 'cilium'\n", {"cni": ["multus", "cilium"]}),
        ("cni: [multus, \"cilium\"]\n", {"cni": ["multus", "cilium"]}),
        ("kubelet-arg+:\n  - \"reserved-cpus=0-1,32-33\"\n", {"kubelet-arg+": ["reserved-cpus=0-1,32-33"]}),
        ("disable-kube-proxy: true\n", {"disable-kube-proxy": True}),
        ("disable-kube-proxy: 'true'\n", {"disable-kube-proxy": "true"}),
        ("a: yes\nb: off\nc: ~\nd:\ne: 12\nf: 1.5\n", {"a": True, "b": False, "c": None, "d": None, "e": 12, "f": "1.5"}),
        ('{"cni": "cilium", "x": {"y": [1]}}', {"cni": "cilium", "x": {"y": [1]}}),
        ("o:\n  a: \"true\"\n  b: 'x''y'\n", {"o": {"a": "true", "b": "x'y"}}),
        ("o: {a: \"true\", b: x}\n", {"o": {"a": "true", "b": "x"}}),
        ("a: 1\n...\nb: 2\n", {"a": 1}),
        ("\ufeffa: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("", {}),
        ("# nothing\n", {}),
    ],
)  # fmt: skip
def test_read(text, found):
    assert read(text) == found
    if "..." not in text and "1.5" not in text:
        assert (yaml.safe_load(text) or {}) == found


@pytest.mark.parametrize(
    "value",
    ["|\n  text", ">-\n  a\n  b", "*alias", "&anchor x", "!!str 5", "a\n  b", "[a,\n  b]", "\n  a:\n    b: 1", "\n  - a: 1\n    b: 2",
     "\n\t- x", "[[a], b]", "{a: {b: 1}}", "\n  - a\n  b: 1", "x: y"],
)  # fmt: skip
def test_a_value_of_another_kind_is_opaque(value):
    found = read("first: 1\nkey: %s\nlast: 2\n" % value)
    assert (found["first"], found["last"]) == (1, 2)
    assert found["key"] is OPAQUE


@pytest.mark.parametrize(
    "text",
    [
        "- a\n",
        "a: 1\n---\nb: 2\n",
        "just text\n",
        "{not json",
        "[1]",
        '{"a": %s' % ("[" * 100_000),
        "? a\n: b\n",
        "%TAG x\n",
        "a\n",
    ],
)
def test_what_cannot_be_divided_is_refused(text):
    with pytest.raises(ValueError, match="."):
        read(text)
