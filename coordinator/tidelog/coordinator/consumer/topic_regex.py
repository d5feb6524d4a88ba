"""Regular expressions over topic names, in time linear in the name (KIP-848, RE2's promise).

A client's expression runs in the coordinator, so it must not be able to stall it: an engine that
tries one way after the other can take years for ``(a+)+b``. This one follows all ways at once
(Thompson 1968, Pike; see Cox, *Regular Expression Matching Can Be Simple And Fast*, 2007) and
remembers the sets of ways it met, as a DFA that is built while it is used.

Topic names are made of 65 characters, so a class of characters is the subset of those that it
allows. An expression has to match the whole name, as with Kafka.

Understood is RE2's syntax: literals, ``.``, ``[a-z]``, ``[[:alpha:]]``, ``\\d \\w \\s`` and their
opposites, ``\\pL``, ``\\x2d``, ``\\Q..\\E``, groups with and without names, ``(?i)``, ``|``,
``* + ? {n,m}`` with or without a lazy ``?``, ``^ $ \\A \\z``. Refused are what RE2 refuses
(back-references, look-around), ``\\b`` and ``\\B``, repetitions above 1000, expressions longer than
``LONGEST`` or larger than ``MOST_STATES`` when written out, and those that cost more than
``MOST_WORK`` steps for all topics.
"""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 2_000
MOST_STATES: Final = 2_000
MOST_REPEATS: Final = 1_000
MOST_WORK: Final = 5_000_000
MOST_REMEMBERED: Final = 20_000
DEEPEST: Final = 100

_LEGAL: Final = frozenset(string.ascii_letters + string.digits + "._-")
_DIGITS: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_PERL: Final = {"d": _DIGITS, "w": _WORD, "s": frozenset[str]()}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": _LEGAL,
    "digit": _DIGITS,
    "graph": _LEGAL,
    "lower": frozenset(string.ascii_lowercase),
    "print": _LEGAL,
    "punct": frozenset("._-"),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class InvalidRegex(ValueError):
    """An expression that is not understood, or too large."""


@dataclass(frozen=True, slots=True)
class _Chars:
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Edge:
    """The beginning or the end of the name."""

    begin: bool


@dataclass(frozen=True, slots=True)
class _Sequence:
    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Choice:
    ways: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    what: _Node
    least: int
    most: int | None


_Node = _Chars | _Edge | _Sequence | _Choice | _Repeat


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._any_case = False
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._text):
            raise InvalidRegex(f"`)` at {self._at} closes nothing")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _accept(self, text: str) -> bool:
        found = self._peek(text)
        self._at += len(text) * found
        return found

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._text):
            raise InvalidRegex(f"it ends where {wanted} is needed")
        self._at += 1
        return self._text[self._at - 1]

    def _choice(self) -> _Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise InvalidRegex(f"groups are nested deeper than {DEEPEST}")
        outer_case = self._any_case
        ways = [self._sequence()]
        while self._accept("|"):
            ways.append(self._sequence())
        self._any_case = outer_case
        self._depth -= 1
        return ways[0] if len(ways) == 1 else _Choice(tuple(ways))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            if self._accept("\\Q"):
                parts += self._quoted()
            else:
                parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else _Sequence(tuple(parts))

    def _quoted(self) -> list[_Node]:
        end = self._text.find("\\E", self._at)
        body = self._text[self._at : end if end >= 0 else None]
        self._at += len(body) + 2 * (end >= 0)
        return [self._literal(char) for char in body]

    def _repeated(self) -> _Node:
        node = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return node
        self._accept("?")  # lazy or not makes no difference to whether it matches
        at = self._at
        if self._bounds() is not None:
            raise InvalidRegex(f"the repetition at {at} follows another one")
        return _Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        if not self._peek("{"):
            return None
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, self._at)].partition(",")
        if not (low.isdecimal() and (high.isdecimal() or not high)):
            return None  # as in RE2 a brace that is no repetition stands for itself
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
            raise InvalidRegex(f"a repetition of {low}{comma}{high}: 0 to {MOST_REPEATS} at most")
        self._at = end + 1
        return least, most

    def _atom(self) -> _Node:
        char = self._next("something to match")
        match char:
            case "(":
                return self._group()
            case "[":
                return self._chars(self._class())
            case ".":
                return _Chars(_LEGAL)
            case "^":
                return _Edge(begin=True)
            case "$":
                return _Edge(begin=False)
            case "\\":
                return self._escaped()
            case "*" | "+" | "?":
                raise InvalidRegex(f"`{char}` at {self._at - 1} repeats nothing")
            case _:
                return self._literal(char)

    def _group(self) -> _Node:
        outer_case = self._any_case
        if self._accept("?"):
            if self._accept("P<") or (self._peek("<") and not self._lookbehind()):
                self._name()
            elif self._flags() == ")":
                return _Sequence(())  # the flags hold to the end of the group around
        node = self._choice()
        self._any_case = outer_case
        if not self._accept(")"):
            raise InvalidRegex("a `)` is missing")
        return node

    def _lookbehind(self) -> bool:
        return self._peek("<=") or self._peek("<!")

    def _name(self) -> None:
        self._accept("<")
        end = self._text.find(">", self._at)
        if end < 0 or not self._text[self._at : end].isidentifier():
            raise InvalidRegex(f"the name of a group at {self._at} is not one")
        self._at = end + 1

    def _flags(self) -> str:
        """``i`` to ignore case; the others of RE2 change nothing for names of one line."""
        on = True
        while True:
            match self._next("the flags of a group"):
                case "i":
                    self._any_case = on
                case "m" | "s" | "U":
                    pass
                case "-" if on:
                    on = False
                case ":" | ")" as end:
                    return end
                case other:
                    raise InvalidRegex(f"`(?{other}` is not understood")

    def _escaped(self) -> _Node:
        char = self._next("an escaped character")
        if char == "A":
            return _Edge(begin=True)
        if char == "z":
            return _Edge(begin=False)
        return self._chars(self._escape(char))

    def _escape(self, char: str) -> frozenset[str]:
        if char.lower() in _PERL:
            return _opposite(_PERL[char.lower()], char.isupper())
        if char in "pP":
            return _opposite(self._category(), char == "P")
        if char in _CONTROL:
            return frozenset(_CONTROL[char])
        if char == "x":
            return frozenset(self._hexadecimal())
        if char.isalnum():
            raise InvalidRegex(f"`\\{char}` is not understood")
        return frozenset(char)

    def _category(self) -> frozenset[str]:
        name = self._next("a category of characters")
        if name == "{":
            end = self._text.find("}", self._at)
            name, self._at = self._text[self._at : max(end, 0)], end + 1
        if not name or name[0] not in "LMNPSZC" or len(name) > 2:
            raise InvalidRegex(f"`{name}` is not a category of characters")
        return frozenset(each for each in _LEGAL if unicodedata.category(each).startswith(name))

    def _hexadecimal(self) -> str:
        if self._accept("{"):
            end = self._text.find("}", self._at)
            digits, self._at = self._text[self._at : max(end, 0)], end + 1
        else:
            digits = self._next("a digit") + self._next("a digit")
        try:
            return chr(int(digits, 16))
        except (ValueError, OverflowError) as error:
            raise InvalidRegex(f"`\\x{digits}` is not a character") from error

    def _class(self) -> frozenset[str]:
        negated = self._accept("^")
        found: set[str] = set()
        first = True
        while first or not self._peek("]"):
            first = False
            found |= self._class_item()
        self._at += 1
        return _opposite(self._cased(frozenset(found)), negated)

    def _class_item(self) -> frozenset[str]:
        if self._accept("[:"):
            end = self._text.find(":]", self._at)
            name = self._text[self._at : max(end, 0)]
            self._at = end + 2
            negated, name = name.startswith("^"), name.removeprefix("^")
            if name not in _POSIX:
                raise InvalidRegex(f"`[:{name}:]` is not a class of characters")
            return _opposite(_POSIX[name], negated)
        low = self._class_char()
        if not self._peek("-") or self._text[self._at + 1 : self._at + 2] in ("", "]"):
            return low
        self._at += 1
        high = self._class_char()
        if len(low) != 1 or len(high) != 1 or max(low) > max(high):
            raise InvalidRegex(f"the range that ends at {self._at} is not one")
        return frozenset(each for each in _LEGAL if max(low) <= each <= max(high))

    def _class_char(self) -> frozenset[str]:
        char = self._next("a `]`")
        return self._escape(self._next("an escaped character")) if char == "\\" else frozenset(char)

    def _literal(self, char: str) -> _Node:
        return self._chars(frozenset(char))

    def _chars(self, allowed: frozenset[str]) -> _Node:
        return _Chars(self._cased(allowed) & _LEGAL)

    def _cased(self, allowed: frozenset[str]) -> frozenset[str]:
        if not self._any_case:
            return allowed
        return allowed | {each.lower() for each in allowed} | {each.upper() for each in allowed}


def _opposite(allowed: frozenset[str], really: bool) -> frozenset[str]:
    return _LEGAL - allowed if really else allowed


class TopicRegex:
    """A compiled expression. States are the instructions that wait for a character, or the end."""

    __slots__ = ("_allowed", "_cache", "_edges", "_first", "_ways", "text", "work")

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise InvalidRegex(f"{len(text)} characters: {LONGEST} at most")
        self.text = text
        self._allowed: list[frozenset[str] | None] = []
        self._ways: list[tuple[int, ...]] = []
        self._edges: dict[int, bool] = {}
        self._cache: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self.work = 0
        """Steps done so far: what an expression costs."""
        end = self._add(None, ())  # instruction 0: matched
        start = self._emit(_Parser(text).parse(), end)
        self.work = 0
        self._first = self._reach([start], begin=True, end=False)

    def matches(self, name: str) -> bool:
        states = self._first
        for char in name:
            if not states:
                return False
            states = self._after(states, char)
        return 0 in self._reach(states, begin=not name, end=True)

    def _after(self, states: frozenset[int], char: str) -> frozenset[int]:
        known = self._cache.get((states, char))
        if known is not None:
            return known
        self.work += len(states)
        moved = [
            way
            for state in states
            if (allowed := self._allowed[state]) is not None and char in allowed
            for way in self._ways[state]
        ]
        if len(self._cache) >= MOST_REMEMBERED:
            self._cache.clear()
        found = self._cache[states, char] = self._reach(moved, begin=False, end=False)
        return found

    def _reach(self, states: Iterable[int], *, begin: bool, end: bool) -> frozenset[int]:
        """All that is reached without a character; what waits for the end stays as it is."""
        seen = set(states)
        todo = list(seen)
        waiting = set()
        while todo:
            state = todo.pop()
            self.work += 1
            edge = self._edges.get(state)
            passes = edge is None or (begin if edge else end)
            if state == 0 or self._allowed[state] is not None or (edge is False and not end):
                waiting.add(state)
            elif passes:
                fresh = [way for way in self._ways[state] if way not in seen]
                seen.update(fresh)
                todo += fresh
        return frozenset(waiting)

    def _add(self, allowed: frozenset[str] | None, ways: tuple[int, ...]) -> int:
        if len(self._ways) >= MOST_STATES:
            raise InvalidRegex(f"it is too large: more than {MOST_STATES} states")
        self._allowed.append(allowed)
        self._ways.append(ways)
        return len(self._ways) - 1

    def _emit(self, node: _Node, after: int) -> int:
        """The instruction to begin with, for a node that is followed by ``after``."""
        self.work += 1
        if self.work > 10 * MOST_STATES:  # a thousand times nothing adds no state, but takes time
            raise InvalidRegex(f"it is too large: more than {10 * MOST_STATES} parts")
        match node:
            case _Chars(allowed):
                return self._add(allowed, (after,))
            case _Edge(begin):
                edge = self._add(None, (after,))
                self._edges[edge] = begin
                return edge
            case _Sequence(parts):
                for part in reversed(parts):
                    after = self._emit(part, after)
                return after
            case _Choice(ways):
                return self._add(None, tuple(self._emit(way, after) for way in ways))
            case _Repeat(what, least, most):
                return self._emit_repeat(what, least, most, after)

    def _emit_repeat(self, what: _Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self._add(None, (after,))
            self._ways[loop] = (self._emit(what, loop), after)
            after = loop
        else:
            for _ in range(most - least):
                after = self._add(None, (self._emit(what, after), after))
        for _ in range(least):
            after = self._emit(what, after)
        return after


def matching_topics(regex: TopicRegex, names: Iterable[str]) -> tuple[str, ...]:
    """The names it matches, in order."""
    found = []
    for name in names:
        if regex.matches(name):
            found.append(name)
        if regex.work > MOST_WORK:
            raise InvalidRegex(f"it takes more than {MOST_WORK} steps for the topics there are")
    return tuple(sorted(found))
