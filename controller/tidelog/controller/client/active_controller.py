"""Who is believed to be the active controller (pure).

Every answer of a controller may name the active one with its term. The highest term wins, since
terms are given out once. A belief that proves wrong (the node cannot be reached, or says that it
is not active and knows no better) is dropped, and the controllers are asked in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.kernel.ids import NodeId


class ActiveController:
    def __init__(self, controllers: Sequence[NodeId]) -> None:
        if not controllers:
            raise ValueError("there is no controller to ask")
        self._controllers = tuple(controllers)
        self._turn = 0
        self._believed: NodeId | None = None
        self._term = -1
        self._on_news: Callable[[], None] = lambda: None

    @property
    def believed(self) -> NodeId | None:
        return self._believed

    @property
    def controllers(self) -> tuple[NodeId, ...]:
        return self._controllers

    @controllers.setter
    def controllers(self, controllers: Sequence[NodeId]) -> None:
        if controllers:
            self._controllers = tuple(controllers)

    def follow(self, on_news: Callable[[], None]) -> None:
        """Be called whenever another one is believed to be active, whoever said so."""
        self._on_news = on_news

    def learn(self, node: NodeId, term: int) -> bool:
        """Somebody named the active controller; whether that is news."""
        if term < self._term:
            return False
        is_news = node != self._believed
        self._believed, self._term = node, term
        if is_news:
            self._on_news()
        return is_news

    def doubt(self, node: NodeId) -> None:
        """This one did not act as the active controller does."""
        if self._believed == node:
            self._believed = None

    def pick(self) -> NodeId:
        """Whom to ask next."""
        if self._believed is not None:
            return self._believed
        self._turn += 1
        return self._controllers[self._turn % len(self._controllers)]
