"""Proxies between nodes, by themselves: a socket at each end and gates between."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.testing.link_proxies import LinkProxies

SOON_S = 30.0
SILENCE_S = 0.15


class Pair:
    """Node 1 has dialled node 2 through a proxy."""

    def __init__(self, proxies: LinkProxies, stack: ExitStack) -> None:
        self._stack = stack
        self._server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._server.settimeout(SOON_S)
        port: int = self._server.getsockname()[1]
        self.proxy = proxies.open(1, 2, SocketAddress("127.0.0.1", port))

    def dial(self) -> socket.socket:
        address = (self.proxy.host, self.proxy.port)
        return self._stack.enter_context(socket.create_connection(address, SOON_S))

    def accept(self) -> socket.socket:
        accepted, _ = self._server.accept()
        accepted.settimeout(SOON_S)
        return self._stack.enter_context(accepted)

    def is_silent(self) -> bool:
        self._server.settimeout(SILENCE_S)
        try:
            self._server.accept()
        except TimeoutError:
            return True
        finally:
            self._server.settimeout(SOON_S)
        return False

    def hang_up(self) -> None:
        self._server.close()


@pytest.fixture
def proxies() -> Iterator[LinkProxies]:
    opened = LinkProxies()
    yield opened
    opened.close()


@pytest.fixture
def pair(proxies: LinkProxies) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(proxies, stack)


def is_silent(end: socket.socket) -> bool:
    """Neither bytes nor word of an end."""
    end.settimeout(SILENCE_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(SOON_S)
    return False


def receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (part := end.recv(size - len(data))):
        data += part
    return data


def test_bytes_pass_both_ways_and_so_does_the_end(pair: Pair) -> None:
    one, two = pair.dial(), pair.accept()
    big = bytes(range(256)) * 4000

    one.sendall(big)
    assert receive(two, len(big)) == big
    two.sendall(b"answer")
    assert receive(one, 6) == b"answer"
    one.shutdown(socket.SHUT_WR)
    assert two.recv(1) == b""
    two.sendall(b"late")
    two.close()
    assert receive(one, 5) == b"late"


def test_a_cut_is_silent_one_way_only_and_loses_nothing(pair: Pair, proxies: LinkProxies) -> None:
    one, two = pair.dial(), pair.accept()

    proxies.cut(1, 2)
    one.sendall(b"held back")
    assert is_silent(two)
    two.sendall(b"heard")
    assert receive(one, 5) == b"heard"
    proxies.mend(1, 2)
    assert receive(two, 9) == b"held back"


def test_the_other_way_is_cut_for_whoever_dialled(pair: Pair, proxies: LinkProxies) -> None:
    one, two = pair.dial(), pair.accept()

    proxies.cut(2, 1)
    one.sendall(b"heard")
    assert receive(two, 5) == b"heard"
    two.sendall(b"held back")
    assert is_silent(one)
    proxies.heal_all()
    assert receive(one, 9) == b"held back"


def test_a_cut_link_accepts_and_does_not_dial(pair: Pair, proxies: LinkProxies) -> None:
    proxies.cut(1, 2)

    one = pair.dial()
    one.sendall(b"hello")
    assert pair.is_silent()
    proxies.mend(1, 2)
    assert receive(pair.accept(), 5) == b"hello"


@pytest.mark.parametrize("is_reset", [False, True])
def test_word_of_an_end_does_not_pass_a_cut(
    pair: Pair, proxies: LinkProxies, is_reset: bool
) -> None:
    one, two = pair.dial(), pair.accept()

    proxies.cut(1, 2)
    if is_reset:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    one.close()
    two.sendall(b"to somebody who has gone")
    two.sendall(b"and again")
    assert is_silent(two)
    proxies.mend(1, 2)
    with pytest.raises(ConnectionResetError) if is_reset else ExitStack():
        assert two.recv(1) == b""


def test_nobody_there_is_told_unless_that_way_is_cut(pair: Pair, proxies: LinkProxies) -> None:
    pair.hang_up()
    assert pair.dial().recv(1) == b""

    proxies.cut(2, 1)
    one = pair.dial()
    assert is_silent(one)
    proxies.mend(2, 1)
    assert one.recv(1) == b""


def test_a_delay_holds_every_byte_that_long_and_no_longer(pair: Pair, proxies: LinkProxies) -> None:
    one, two = pair.dial(), pair.accept()
    proxies.slow(1, 2, 200.0, 0.0)

    begun_s = time.monotonic()
    for _ in range(5):
        one.sendall(b"x")
        time.sleep(0.02)
    assert receive(two, 5) == b"xxxxx"
    took_s = time.monotonic() - begun_s
    assert 0.2 <= took_s < 0.2 * 5, "delays do not add up"
    begun_s = time.monotonic()
    two.sendall(b"y")
    assert receive(one, 1) == b"y"
    assert time.monotonic() - begun_s < 0.2, "the other way is not delayed"


def test_bandwidth_is_that_of_the_direction_not_of_a_connection(
    pair: Pair, proxies: LinkProxies
) -> None:
    pairs = [(pair.dial(), pair.accept()) for _ in range(2)]
    proxies.slow(1, 2, 0.0, 200_000.0)

    begun_s = time.monotonic()
    for one, _ in pairs:
        one.sendall(bytes(40_000))
    for _, two in pairs:
        assert len(receive(two, 40_000)) == 40_000
    assert time.monotonic() - begun_s >= 0.35


def test_a_reset_ends_what_one_node_has_dialled_and_lets_it_dial_again(
    pair: Pair, proxies: LinkProxies
) -> None:
    one, two = pair.dial(), pair.accept()
    one.sendall(b"x")
    assert receive(two, 1) == b"x"

    assert proxies.reset(2, 1) == 0
    assert proxies.reset(1, 2) == 1
    for end in (one, two):
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    again = pair.dial()
    again.sendall(b"y")
    assert receive(pair.accept(), 1) == b"y"


def test_closing_ends_connections_that_are_held_back(pair: Pair, proxies: LinkProxies) -> None:
    one, two = pair.dial(), pair.accept()
    proxies.cut(1, 2)
    one.sendall(b"x")

    proxies.close()
    assert two.recv(1) == b""
    with pytest.raises(OSError):
        pair.dial()
