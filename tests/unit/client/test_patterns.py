"""Patterns of topic names mean to librdkafka what they mean to Python."""

from __future__ import annotations

import ctypes
import re

import pytest

from tidelog.client.errors import WrongType
from tidelog.client.patterns import posix_pattern

NAMES = [
    "a", "b", "ab", "abc", "aab", "orders", "orders-1", "orders-22", "orders.eu", "orders_eu",
    "Orders", "ORDERS-1", "1", "22", "a.b", "a-b", "a_b", "-", ".", "_", "a-", "x9", "9x",
    "ordersX1", "orders--1", "aaa", "bb",
]  # fmt: skip

_EXTENDED = 1


def matches_in_posix(pattern: str, names: list[str]) -> set[str]:
    """As librdkafka asks: by the C library, with REG_EXTENDED."""
    libc = ctypes.CDLL(None)
    compiled = ctypes.create_string_buffer(512)
    assert libc.regcomp(compiled, pattern.encode(), _EXTENDED) == 0, pattern
    found = {name for name in names if libc.regexec(compiled, name.encode(), 0, None, 0) == 0}
    libc.regfree(compiled)
    return found


@pytest.mark.parametrize(
    "pattern",
    [
        r"orders-\d+", r"orders.*", r"orders\..*", r"orders", r"a|b", r"(?:a|b)+", r"(?P<x>a)b",
        r"[ab]+", r"[^a]+", r"\w+", r"\W", r"\D+", r"[\w.]+", r"[\d-]+", r"[-a]+", r"[a\-b]+",
        r"[a\-_]*b", r"[A-Z]+-[0-9]", r"a{2}b", r"a{1,2}b?", r"a+?b", r"a*?", r"^orders$",
        r"\Aorders-1\Z", r"orders[._]eu", r"[^\d]", r"[\]a]", r"a-b", r"\-", r"[.]",
        r"orders\-1", r".{1,3}?",
    ],
)  # fmt: skip
def test_the_same_names_match(pattern: str) -> None:
    expected = {name for name in NAMES if re.fullmatch(pattern, name)}
    assert matches_in_posix(posix_pattern(re.compile(pattern)), NAMES) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (re.compile("a", re.IGNORECASE), "has flags"),
        (re.compile("(?i)a"), "has flags"),
        (re.compile("a b", re.VERBOSE), "has flags"),
        (re.compile("(?=a)a"), "have no '(?='"),
        (re.compile("(?!a).*"), "have no '(?!'"),
        (re.compile(r"(a)\1"), r"have no '\1'"),
        (re.compile(r"\bx"), r"have no '\b'"),
        (re.compile(r"[\D]"), r"have no '\D' in brackets"),
        (re.compile("a++b"), "possessive"),
        (re.compile(b"a"), "names are text"),
    ],
)
def test_what_posix_cannot_say_is_refused(pattern: re.Pattern[str], words: str) -> None:
    with pytest.raises(WrongType) as caught:
        posix_pattern(pattern)
    assert words in str(caught.value)
