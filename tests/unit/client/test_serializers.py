from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client import (
    SerializationFailed,
    WrongType,
    bytes_deserializer,
    bytes_serializer,
    json_deserializer,
    json_serializer,
    msgpack_deserializer,
    msgpack_serializer,
    str_deserializer,
    str_serializer,
)
from tidelog.client.producing import RecordMaker

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(derandomize=True, max_examples=50)
@given(JSON)
def test_json_and_msgpack_come_back(value: Any) -> None:
    assert json_deserializer(json_serializer(value)) == value
    assert msgpack_deserializer(msgpack_serializer(value)) == value


@settings(derandomize=True, max_examples=30)
@given(st.binary(), st.text())
def test_bytes_and_text_come_back(data: bytes, text: str) -> None:
    assert bytes_deserializer(bytes_serializer(data)) == data
    assert str_deserializer(str_serializer(text)) == text


def test_json_is_compact_utf8() -> None:
    assert json_serializer({"ü": [1, 2]}) == '{"ü":[1,2]}'.encode()


def test_bytes_of_other_kinds_are_taken() -> None:
    assert bytes_serializer(bytearray(b"x")) == b"x"  # type: ignore[arg-type]
    assert bytes_serializer(memoryview(b"x")) == b"x"  # type: ignore[arg-type]


def maker(key: Any = bytes_serializer, value: Any = bytes_serializer) -> RecordMaker[Any, Any]:
    return RecordMaker(key, value)


def test_a_record_as_librdkafka_takes_it() -> None:
    made = maker(str_serializer).make("t", b"v", "k", {"h": b"1"}, 3, 99)
    assert made == ("t", b"v", b"k", [("h", b"1")], 3, 99)
    assert maker().make("t", None, None, None, None, None) == ("t", None, None, None, -1, 0)
    assert maker().make("t", b"", None, [("h", None), ("h", b"")], 0, 1).headers == [
        ("h", None),
        ("h", b""),
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("t", "text", None, None, None, None), "value: bytes are wanted and str was given"),
        (("t", b"", 7, None, None, None), "key: bytes are wanted and int was given"),
        (("", b"", None, None, None, None), "topic"),
        ((None, b"", None, None, None, None), "topic"),
        (("t", b"", None, {"h": "x"}, None, None), "header 'h': bytes are wanted, not str"),
        (("t", b"", None, [(1, b"")], None, None), "a name is text, not int"),
        (("t", b"", None, ["h"], None, None), "pairs of a name and bytes"),
        (("t", b"", None, None, -1, None), "partition=-1"),
        (("t", b"", None, None, "0", None), "partition: a whole number is wanted, not str"),
        (("t", b"", None, None, True, None), "partition: a whole number is wanted, not bool"),
        (("t", b"", None, None, None, 1.5), "timestamp: a whole number is wanted, not float"),
        (("t", b"", None, None, None, -5), "timestamp=-5"),
        (("t", b"", None, None, None, 0), "timestamp=0"),  # librdkafka would take it for now
        (("\ud800", b"", None, None, None, None), "topic: '\\ud800' has no form in UTF-8"),
        (("a\0b", b"", None, None, None, None), "holds a NUL"),
        (("t", b"", None, {"\ud800": b""}, None, None), "has no form in UTF-8"),  # a crash else
        (("t", b"", None, {"a\0b": b""}, None, None), "holds a NUL"),  # else the name ends there
        (("t", b"", None, 5, None, None), "pairs of a name and bytes are wanted, not 5"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(arguments: Any, words: str) -> None:
    with pytest.raises(WrongType) as caught:
        maker().make(*arguments)
    assert words in str(caught.value)
    assert isinstance(caught.value, TypeError)


def test_what_a_serializer_cannot_do() -> None:
    with pytest.raises(SerializationFailed, match="value: json_serializer failed") as caught:
        maker(value=json_serializer).make("t", {1, 2}, None, None, None, None)
    assert caught.value.name == "_VALUE_SERIALIZATION"
    with pytest.raises(SerializationFailed, match="key: json_serializer failed") as caught:
        maker(key=json_serializer).make("t", None, float("nan"), None, None, None)
    assert caught.value.name == "_KEY_SERIALIZATION"
    with pytest.raises(WrongType, match="a serializer gives bytes"):
        maker(value=str).make("t", 1, None, None, None, None)
    with pytest.raises(WrongType, match="value: str is wanted"):
        maker(value=str_serializer).make("t", b"x", None, None, None, None)
