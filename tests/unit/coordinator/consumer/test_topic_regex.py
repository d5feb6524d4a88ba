"""Expressions over topic names: as Python's where both understand them, and never slow."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.consumer import topic_regex
from tidelog.coordinator.consumer.topic_regex import InvalidRegex, TopicRegex, matching_topics

FEW = settings(derandomize=True, max_examples=400, deadline=None)
NAMES = ["", "a", "ab", "aab", "w-t", "w-in", "t1", "T1", "a.b", "a_b", "-", "...", "abc-123"]


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "w-.*", "w-(t|in)", "[a-c]+", "[^a]*", "a?b", "a{2}b", "a{1,2}b?", "a{0}",
        "a{1,}b",
        r"\d+", r"\w*", r"[\w.]+", r"\D\d", r"a\.b", "a.b", "^w-t$", "(?:a|ab)(?:c|-|)", "()", "|a",
        "(?P<name>a)b", "(?i)T1", "(?i:t)1", "[]a]", "[a-]", "[-a]", r"\x61b", "a*?b", "(a*)*b",
        "^^a", "a$$", "($|a)b", r"\S+", "(^a)?b", "x^", "[.]+",
    ],
)  # fmt: skip
def test_as_python_does(text: str) -> None:
    ours, theirs = TopicRegex(text), re.compile(text)
    for name in NAMES:
        assert ours.matches(name) == bool(theirs.fullmatch(name)), name


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "^", "$", "-"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map(lambda one: f"(?:{one}){{1,2}}"),
    ),
    max_leaves=6,
)


@FEW
@given(EXPRESSIONS, st.text("ab1-", max_size=6))
def test_any_expression_as_python_does(text: str, name: str) -> None:
    assert TopicRegex(text).matches(name) == bool(re.fullmatch(text, name))


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("[[:alpha:]]+", ["a", "ab", "aab"]),
        ("[[:^alpha:]]", ["-"]),
        (r"\pL\p{Nd}", ["t1", "T1"]),
        (r"\P{L}+", ["-", "..."]),
        (r"\Qa.b\E", ["a.b"]),
        (r"\Aa\z", ["a"]),
        ("(?<x>a)", ["a"]),
        ("a{x}", []),
        (r"\x{61}", ["a"]),
    ],
)
def test_what_only_re2_knows(text: str, matched: list[str]) -> None:
    assert [name for name in NAMES if TopicRegex(text).matches(name)] == matched


@pytest.mark.parametrize(
    "text",
    [
        "(", ")", "a)", "[", "[a", "*", "+a", "a**", "a{2}{3}", "(?=a)", "(?!a)", "(?<=a)",
        "(?<!a)b",
        r"(a)\1", r"\b", r"\B", "\\", r"\y", "[b-a]", "[[:nosuch:]]", r"\pX", r"\p{Greek}", "(?x)a",
        "a{1001}", "a{3,2}", "(?P<1>a)", "(?P<n", r"\xzz", r"\x{110000}", "(?", "(?i", r"[\d-z]",
        r"\p", r"[\p", "(" * 101 + ")" * 101, "a" * 2001, "(a{1000}){3}",
        "((){1000}){1000}",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(InvalidRegex):
        TopicRegex(text)


@FEW
@given(st.text("ab()[]{}*+?|\\^$.-,:=!<>Pi0123xdQE&", max_size=12))
def test_anything_is_compiled_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidRegex):
        TopicRegex(text).matches("ab-1")


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*.*.*.*.*.*.*)b", "(a?){200}a{200}"]
)
def test_no_expression_is_slow(text: str) -> None:
    regex = TopicRegex(text)
    assert not regex.matches("a" * 248 + "-")
    assert regex.work < 1_000_000


def test_an_expression_that_costs_too_much_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_regex, "MOST_WORK", 100)
    regex = TopicRegex("(a?){50}a{50}")
    with pytest.raises(InvalidRegex, match="more than 100 steps"):
        matching_topics(regex, ["a" * 200])


def test_matching_topics_come_in_order() -> None:
    assert matching_topics(TopicRegex("w-.*"), ["w-t", "x", "w-in"]) == ("w-in", "w-t")
