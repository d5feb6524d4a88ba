"""A Python pattern of topic names as librdkafka understands it: POSIX's extended expressions.

What both write in the same way is left alone, ``\\d`` and its like are spelled out, and what POSIX
cannot say is refused. Handed on as it is, ``orders-\\d+`` would match nothing, without a word.

Names of topics have letters, digits, ``.``, ``_`` and ``-`` only; that makes classes simple.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from tidelog.client.errors import WrongType

_CLASSES: Final = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_WITHOUT_EFFECT: Final = re.UNICODE | re.ASCII | re.DOTALL
"""On what names of topics can be."""
_NEVER_IN_A_NAME: Final = frozenset("^]\\[")
_GROUP: Final = re.compile(r"\(\?(:|P<\w+>)")
_LAZY: Final = re.compile(r"([*+?]|\{\d*,?\d*\})\?")
_POSSESSIVE: Final = re.compile(r"([*+?]|\{\d*,?\d*\})\+")


def posix_pattern(pattern: re.Pattern[str]) -> str:
    """Matches a whole name if the pattern's ``fullmatch`` does; ``WrongType`` if there is none."""
    if not isinstance(pattern.pattern, str):
        raise WrongType(f"topics: {pattern!r} is a pattern of bytes; names are text")
    if pattern.flags & ~_WITHOUT_EFFECT:
        raise WrongType(f"topics: {pattern!r} has flags, which librdkafka's patterns have not")
    return f"^({_Translation(pattern.pattern).run()})$"


class _Translation:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._made: list[str] = []

    def run(self) -> str:
        while self._at < len(self._text):
            self._made.append(self._next())
        return "".join(self._made)

    def _next(self) -> str:
        text, at = self._text, self._at
        if _POSSESSIVE.match(text, at):
            self._refuse("possessive quantifiers")
        if lazy := _LAZY.match(text, at):  # of a whole match laziness makes no difference
            self._at = lazy.end()
            return lazy.group(1)
        if group := _GROUP.match(text, at):
            self._at = group.end()
            return "("
        if text.startswith("(?", at):
            self._refuse(f"{text[at : at + 3]!r}")
        self._at += 1
        match text[at]:
            case "\\":
                return self._escaped()
            case "[":
                return self._bracket()
            case other:
                return other

    def _escaped(self) -> str:
        letter = self._text[self._at]
        self._at += 1
        if letter in "AZ":
            return ""  # the match is of a whole name anyway
        if letter.lower() in _CLASSES:
            return f"[{'^' if letter.isupper() else ''}{_CLASSES[letter.lower()]}]"
        if letter.isalnum():
            self._refuse(f"'\\{letter}'")
        return "\\" + letter

    def _bracket(self) -> str:
        """Escapes are none inside of POSIX's brackets, and ``-`` is itself at their end."""
        text = self._text
        is_negated = text.startswith("^", self._at)
        self._at += is_negated
        first = self._at
        members, dash = "", ""
        while text[self._at] != "]" or self._at == first:
            one = text[self._at]
            self._at += 1
            is_escaped = one == "\\"
            if is_escaped:
                one = text[self._at]
                self._at += 1
                if one.isupper() or (one.isalnum() and one not in _CLASSES):
                    self._refuse(f"'\\{one}' in brackets")
                one = _CLASSES.get(one, one)
            is_range = one == "-" and not is_escaped and members and text[self._at] != "]"
            if one == "-" and not is_range:
                dash = "-"
            elif one not in _NEVER_IN_A_NAME:
                members += one
        self._at += 1
        return f"[{'^' if is_negated else ''}{members or ' '}{dash}]"

    def _refuse(self, what: str) -> NoReturn:
        raise WrongType(
            f"topics: {self._text!r}: librdkafka's patterns, which are POSIX's, have no {what}"
        )
