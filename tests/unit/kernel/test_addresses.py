"""Where to dial which node."""

from __future__ import annotations

import pytest

from tidelog.kernel.addresses import AddressBook, SocketAddress, parse_node_addresses
from tidelog.kernel.ids import NodeId


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9093", SocketAddress("127.0.0.1", 9093)),
        (" broker-1.example:1 ", SocketAddress("broker-1.example", 1)),
        ("[::1]:65535", SocketAddress("::1", 65535)),
    ],
)
def test_an_address_is_read_and_printed(text: str, address: SocketAddress) -> None:
    assert SocketAddress.parse(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":9092",
        "host:-1",
        "host:65536",
        "host:９",
        "::1:9092",
        "[host]:1",
        "[]:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an address of the form"):
        SocketAddress.parse(text)


def test_a_list_of_nodes() -> None:
    assert parse_node_addresses("") == {}
    assert parse_node_addresses("1@a:1, 20@[::2]:2,") == {
        NodeId(1): SocketAddress("a", 1),
        NodeId(20): SocketAddress("::2", 2),
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a:1", "node-id@host:port"),
        ("-1@a:1", "node-id@host:port"),
        ("1@a", "form host:port"),
        ("1@a:1,1@b:1", "node 1 has two addresses"),
    ],
)
def test_a_list_that_is_wrong_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_node_addresses(text)


def test_an_override_wins_over_what_was_registered_and_that_over_the_voter_list() -> None:
    voter, registered, proxy = (SocketAddress(host, 1) for host in ("voter", "registered", "proxy"))
    node = NodeId(1)
    book = AddressBook(voters={node: voter})
    assert book.dialled(NodeId(2)) is None
    assert book.dialled(node) == voter
    book.learn(node, registered)
    assert book.dialled(node) == registered
    book.overrides = {node: proxy}
    assert book.dialled(node) == proxy
    book.overrides = {}
    book.forget(node)
    assert book.dialled(node) == voter
    assert book.voters == {node: voter}
