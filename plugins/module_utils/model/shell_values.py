# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shell assignments of GRUB's defaults files, read without running them, with the file that each piece of a value came from.

``grub-mkconfig`` sources /etc/default/grub and, on Debian, /etc/default/grub.d/*.cfg. So the files are shell: quotes, ``${X}``,
``X="$X more"``, ``+=`` (a bash word: dash takes it for a command), line continuations. What only a shell can know, such as
``$(command)`` or an assignment inside an ``if``, is told in ``problems``, never guessed in silence.

A value is a list of pieces ``(text, owner)``: ``X="$X more"`` in a second file keeps the first file's pieces with their owner.
"""

from __future__ import annotations

import re

MAX_VALUE = 64 * 1024  # a kernel takes 2,048; X="$X$X" doubles a value with every line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_BLOCKS = frozenset(
    ("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "fi", "done", "for", "case", "esac")
)
_ELSEWHERE = frozenset((".", "source", "eval", "unset", "set", "read"))
_DEPTH = 20


class _Broken(Exception):
    """The text is no complete shell: the sentence says why."""


def evaluate(files, values=None):
    """{"values": {name: pieces}, "problems": [(path, sentence)], "broken", "appended", "unknown": {name: path}}.

    files: [(path, text)] in the order in which they are sourced. broken: paths of files that a shell would not take; appended: paths of
    files with +=; unknown: variables whose value depends on a command.
    """
    result = {"values": dict(values or {}), "problems": [], "broken": [], "appended": [], "unknown": {}}
    for path, text in files:
        _Reader(path, text, result).run()
    return result


def flat(pieces):
    """(text, owner of each character) of a value."""
    return "".join(text for text, _owner in pieces), [owner for text, owner in pieces for _char in text]


def tokens(pieces, environment=None):
    """[{"text", "owner"}] of a kernel command line in pieces. A token that pieces share belongs to the last of them.

    environment: {name: pieces} of variables that GRUB itself puts in place of ``$name`` when it boots, such as tuned_params.
    """
    text, owners = flat(at_boot(pieces, environment) if environment is not None else pieces)
    found, token, owner, quoted = [], "", None, False
    for char, whose in zip(text, owners):
        if char == '"':
            quoted = not quoted
        if char.isspace() and not quoted:
            if token:
                found.append({"text": token, "owner": owner})
            token = ""
        else:
            token += char
            owner = whose
    if token:
        found.append({"text": token, "owner": owner})
    return found


_BOOT_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def at_boot(pieces, environment):
    """Pieces with ``$name`` and ``${name}`` put in by GRUB; a variable that it does not have is empty."""
    text, owners = flat(pieces)
    done, last = [], 0
    for found in _BOOT_VARIABLE.finditer(text):
        done += zip(text[last : found.start()], owners[last : found.start()])
        done += environment.get(found.group(1) or found.group(2), [])
        last = found.end()
    done += zip(text[last:], owners[last:])
    return done


class _Reader:
    """One file."""

    def __init__(self, path, text, result):
        self.path = path
        self.text = text
        self.result = result
        self.at = 0
        self.dynamic = False
        self.depth = 0

    def run(self):
        try:
            while self.at < len(self.text):
                self._command()
        except _Broken as error:
            self.result["problems"].append((self.path, str(error)))
            self.result["broken"].append(self.path)

    def _peek(self):
        return self.text[self.at] if self.at < len(self.text) else ""

    def _line(self):
        return self.text.count("\n", 0, self.at) + 1

    def _command(self):
        """Reads to the end of one command and keeps what it assigns."""
        before = dict(self.result["values"])
        assigned, words, exported = False, 0, False
        while True:
            char = self._peek()
            if char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
                char = self._peek()
            if not char or char in "\n;&|":
                if char and char in "&|":
                    self._note("line %d decides something while it runs (%s)" % (self._line(), char))
                self.at += 1
                break
            if char in "()<>":
                if char in "()":
                    self._note("line %d holds more than assignments" % self._line())
                self.at += 1
                continue
            if char.isspace():
                self.at += 1
                continue
            if self.text.startswith("\\\n", self.at):
                self.at += 2
                continue
            found = _ASSIGNMENT.match(self.text, self.at) if not words or exported else None
            if found:
                self.at = found.end()
                self.dynamic = False
                self._keep(found.group(1), found.group(2), self._word(), self.dynamic)
                assigned = True
                continue
            start = self.at
            self._word()
            word = self.text[start : self.at]
            if word in _BLOCKS and not words:
                self._note("line %d decides something while it runs (%s)" % (self._line(), word))
                continue
            if not words and word in _ELSEWHERE:
                self._note("line %d sets what is written elsewhere (%s)" % (self._line(), word))
            exported = exported or (word in ("export", "readonly") and not words)
            words += 1
            if self.at == start:  # nothing that a word can begin with
                self.at += 1
        if words and not exported and assigned:
            self.result["values"] = before  # X=1 command: for that command only

    def _note(self, sentence):
        if (self.path, sentence) not in self.result["problems"]:
            self.result["problems"].append((self.path, sentence))

    def _keep(self, name, append, pieces, dynamic):
        values = self.result["values"]
        if append:
            pieces = values.get(name, []) + pieces
            if self.path not in self.result["appended"]:
                self.result["appended"].append(self.path)
        if sum(len(text) for text, _owner in pieces) > MAX_VALUE:
            self._note("%s grows beyond %d characters" % (name, MAX_VALUE))
            values[name] = []
            return
        values[name] = _merged(pieces)
        if dynamic:
            self.result["unknown"][name] = self.path
        elif not append:
            self.result["unknown"].pop(name, None)

    def _word(self, closing=None, quoted=False):
        """Pieces of the word that begins here. closing: "}" inside ${X:+word}; quoted: inside double quotes."""
        self.depth += 1
        if self.depth > _DEPTH:
            raise _Broken("line %d is nested too deeply" % self._line())
        pieces, literal = [], []

        def flush():
            if literal:
                pieces.append(("".join(literal), self.path))
                literal.clear()

        while self.at < len(self.text):
            char = self.text[self.at]
            if closing and char == closing:
                break
            if not closing and (char.isspace() or char in ";&|()<>"):
                break
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if following != "\n":
                    keeps = quoted and following not in ("$", "`", '"', "\\", "}")
                    literal.append("\\" + following if keeps or not following else following)
            elif char == "'" and not quoted:
                end = self.text.find("'", self.at + 1)
                if end < 0:
                    raise _Broken("line %d opens a quote that nothing closes" % self._line())
                literal.append(self.text[self.at + 1 : end])
                self.at = end + 1
            elif char == '"':
                flush()
                pieces += self._quoted()
            elif char in "$`":
                flush()
                pieces += self._expansion(quoted)
            else:
                literal.append(char)
                self.at += 1
        flush()
        self.depth -= 1
        return pieces

    def _quoted(self):
        line = self._line()
        self.at += 1
        pieces, literal = [], []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                if literal:
                    pieces.append(("".join(literal), self.path))
                return pieces
            if char == "\\":
                following = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if following in ("$", "`", '"', "\\"):
                    literal.append(following)
                elif following != "\n":
                    literal.append("\\" + following)
            elif char in "$`":
                if literal:
                    pieces.append(("".join(literal), self.path))
                    literal = []
                pieces += self._expansion(True)
            else:
                literal.append(char)
                self.at += 1
        raise _Broken("line %d opens a quote that nothing closes" % line)

    def _expansion(self, quoted):
        """Pieces that stand for what begins with $ or ` here."""
        line = self._line()
        if self._peek() == "`":
            self._skip("`", None)
            return []
        following = self.text[self.at + 1 : self.at + 2]
        if following == "(":
            self.at += 1
            self._skip(")", "(")
            return []
        if following == "{":
            self.at += 2
            name = _NAME.match(self.text, self.at)
            pieces = None
            if name:
                self.at = name.end()
                value = self.result["values"].get(name.group(0))
                operator = re.compile(r":?[-+]").match(self.text, self.at)
                if self._peek() == "}":
                    pieces = list(value or [])
                elif operator:
                    self.at = operator.end()
                    word = self._word("}", quoted)
                    is_set = value is not None and (operator.group(0)[0] != ":" or any(text for text, _owner in value))
                    if operator.group(0)[-1] == "+":
                        pieces = word if is_set else []
                    else:
                        pieces = list(value or []) if is_set else word
            if pieces is None:
                self.dynamic = True
                pieces = []
                end = self.text.find("}", self.at)
                self.at = len(self.text) if end < 0 else end
            if self._peek() != "}":
                raise _Broken("line %d opens a brace that nothing closes" % line)
            self.at += 1
            return pieces
        name = _NAME.match(self.text, self.at + 1)
        if name:
            self.at = name.end()
            return list(self.result["values"].get(name.group(0), []))
        if following and following in "0123456789@*#?$!-":
            self.dynamic = True
            self.at += 2
            return []
        self.at += 1
        return [("$", self.path)]

    def _skip(self, closing, opening):
        """Passes over a command substitution; what it gives is unknown."""
        line = self._line()
        self.dynamic = True
        self.at += 1
        level = 1
        while self.at < len(self.text):
            char = self.text[self.at]
            self.at += 1
            if char == "\\":
                self.at += 1
            elif char in "'\"" and opening:
                end = self.text.find(char, self.at)
                if end < 0:
                    break
                self.at = end + 1
            elif char == closing:
                level -= 1
                if not level:
                    return
            elif opening and char == opening:
                level += 1
        raise _Broken("line %d opens a command that nothing closes" % line)


def _merged(pieces):
    """The same value with neighbours of one owner joined; an assigned empty value stays a list, which is not "unset"."""
    merged = []
    for text, owner in pieces:
        if merged and merged[-1][1] == owner:
            merged[-1] = (merged[-1][0] + text, owner)
        elif text:
            merged.append((text, owner))
    return merged
