"""The properties format, as java.util.Properties reads and writes it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.settings.properties import (
    MalformedProperties,
    Property,
    format_properties,
    parse_properties,
    read_properties,
)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# comment\n! another\n\n   \n", {}),
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a  =  1  ", {"a": "1  "}),
        ("a\t:\t1", {"a": "1"}),
        ("a==1", {"a": "=1"}),
        ("a b=c", {"a": "b=c"}),
        ("a", {"a": ""}),
        ("=1", {"": "1"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   ,2\\\n   ,3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\n#2", {"a": "1#2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("#a\\\nb=2", {"b": "2"}),
        ("a\\ b\\=c\\:d=1", {"a b=c:d": "1"}),
        ("a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        ("a=\\u00e4\\u20AC\\ud83d\\ude00", {"a": "ä€😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
    ],
)  # fmt: skip
def test_reading(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


def test_lines_are_counted_where_a_property_begins() -> None:
    text = "# one\na=1\\\n 2\n\nb=3"
    assert read_properties(text) == [Property("a", "12", 2), Property("b", "3", 5)]


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(MalformedProperties, match="line 2"):
        parse_properties("a=1\nb=\\u12x4")


def test_writing_escapes_as_java_does() -> None:
    text = format_properties({"a b": "  x y=ä", "version": "1", "#": "😀"}, ("", "a comment"))
    assert text == ("#\n#a comment\na\\ b=\\ \\ x y\\=\\u00E4\nversion=1\n\\#=\\uD83D\\uDE00\n")


@settings(derandomize=True, max_examples=300)
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=4))
def test_what_is_written_is_read(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
