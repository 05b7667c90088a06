# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""YAML without a library: all that this collection writes, and the part of it that RKE2's and the kubelet's files are made of.

``write`` renders a mapping the same way every time. ``read`` gives the top-level keys of a file; a value of a kind that it does not
know is OPAQUE, and a file that it cannot divide into its top-level keys is a ValueError. The hosts that it reads have no PyYAML.
"""

from __future__ import annotations

import json
import re

OPAQUE = object()

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._/=+-]*\Z", re.ASCII)
# YAML 1.1, which Go's and Python's parsers follow, takes more words than true and false for booleans
_TRUE, _FALSE, _NULL = ("true", "yes", "on"), ("false", "no", "off"), ("null", "~", "")
_WORDS = frozenset(_TRUE + _FALSE + _NULL + ("y", "n"))
_KEY = re.compile(r"""(?:"([^"\\]*)"|'([^']*)'|([A-Za-z0-9_][A-Za-z0-9_./+-]*))\s*:(?:[ \t]+(.*))?\Z""", re.ASCII)
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:\#.*)?\Z')
_SINGLE = re.compile(r"'((?:[^']|'')*)'\s*(?:\#.*)?\Z")
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z", re.ASCII)
_FLOW = re.compile(r"""\s*((?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^"'\[\]{},#])+)(,|\Z)""")


def write(mapping, comment=()):
    """The text of a mapping of text, whole numbers, booleans, lists and mappings of them; ``comment``: lines to put above it."""
    return "".join("# %s\n" % line for line in comment) + "\n".join(_lines(mapping)) + "\n"


def _lines(mapping):
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            yield _scalar_text(key) + ":"
            for line in _lines(value):
                yield "  " + line
        elif isinstance(value, list) and value:
            yield _scalar_text(key) + ":"
            for item in value:
                yield "  - " + _flow_text(item)
        else:
            yield "%s: %s" % (_scalar_text(key), _flow_text(value))


def _flow_text(value):
    if isinstance(value, dict):
        return "{%s}" % ", ".join("%s: %s" % (_scalar_text(key), _flow_text(entry)) for key, entry in value.items())
    if isinstance(value, list):
        return "[%s]" % ", ".join(_flow_text(entry) for entry in value)
    return _scalar_text(value)


def _scalar_text(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return '"%s"' % "".join(map(_escaped, value))


def _escaped(char):
    if char in '"\\':
        return "\\" + char
    if " " <= char <= "~":
        return char
    code = ord(char)
    return "\\x%02x" % code if code < 0x100 else "\\u%04x" % code if code < 0x10000 else "\\U%08x" % code


def read(text):
    """{top-level key: value}. Raises ValueError with the end of a sentence."""
    text = text.lstrip("\ufeff")
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)  # YAML's flow style over several lines is not read, JSON is
        except RecursionError:
            raise ValueError("it is too deep") from None
        if not isinstance(document, dict):
            raise ValueError("it is no mapping")
        return document
    found = {}
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        line = lines[place].rstrip()
        place += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if re.match(r"---(\s+\#|\Z)", line) and not found:
            continue
        if line == "...":
            break
        match = _KEY.match(line)
        if not match:
            raise ValueError("line %d is no top-level key" % place)
        block = []
        while place < len(lines) and (
            not lines[place].strip() or lines[place][0] in " \t#" or re.match(r"-(\s|\Z)", lines[place])
        ):
            if lines[place].strip() and not lines[place].lstrip().startswith("#"):
                block.append(lines[place].rstrip())
            place += 1
        found[_key(match)] = _value((match.group(4) or "").strip(), block)
    return found


def _key(match):
    return next(group for group in match.groups()[:3] if group is not None)


def _value(rest, block):
    if rest and not rest.startswith("#"):
        return OPAQUE if block else _flow(rest)  # a value over several lines
    if not block:
        return None
    if any(line[: len(line) - len(line.lstrip())].count("\t") for line in block):
        return OPAQUE
    indents = {len(line) - len(line.lstrip()) for line in block}
    if len(indents) > 1:
        return OPAQUE
    inner = [line.strip() for line in block]
    if all(re.match(r"-\s", line) for line in inner):
        items = [_flow(line[1:].strip()) for line in inner]
        return OPAQUE if OPAQUE in items else items
    pairs = [_KEY.match(line) for line in inner]
    if not all(pairs):
        return OPAQUE
    entries = {_key(pair): _flow((pair.group(4) or "").strip()) for pair in pairs}
    return OPAQUE if OPAQUE in entries.values() else entries


def _flow(text):
    """A value on one line: a scalar, a list of scalars or a mapping of scalars."""
    listed = re.match(r"\[(.*)\]\s*(?:\#.*)?\Z", text)
    mapped = re.match(r"\{(.*)\}\s*(?:\#.*)?\Z", text)
    if listed:
        items = _split(listed.group(1))
        values = None if items is None else [_scalar(item) for item in items]
        return OPAQUE if values is None or OPAQUE in values else values
    if mapped:
        entries = {}
        for item in _split(mapped.group(1)) or ():
            key, colon, value = item.partition(": ")
            entries[key.strip().strip("\"'")] = _scalar(value.strip()) if colon else OPAQUE
        return OPAQUE if OPAQUE in entries.values() or (mapped.group(1).strip() and not entries) else entries
    return _scalar(text)


def _split(text):
    items, place = [], 0
    while text[place:].strip():
        match = _FLOW.match(text, place)
        if not match:
            return None
        items.append(match.group(1).strip())
        place = match.end()
    return items


def _scalar(text):
    match = _DOUBLE.match(text)
    if match:
        try:
            return json.loads('"%s"' % match.group(1))
        except ValueError:
            return OPAQUE
    match = _SINGLE.match(text)
    if match:
        return match.group(1).replace("''", "'")
    text = re.split(r"(?:\A|\s)\#", text, maxsplit=1)[0].strip()
    if text[:1] in tuple("&*!|>%@`[]{},\"'") or ": " in text or text.endswith(":"):
        return OPAQUE if text else None
    word = text.lower()
    if word in _NULL:
        return None
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    return int(text) if _INT.match(text) else text
