"""A listener's own calls are done by the thread that waits for it."""

from __future__ import annotations

from concurrent.futures import Future

from tidelog.client.listening import Desk


def test_a_listener_may_ask_the_moment_it_is_told() -> None:
    desk = Desk()
    asked: list[Future[str]] = []

    def tell() -> Future[None]:
        answer = desk.submit(lambda: "done")
        assert answer is not None, "its call would wait for the poll that waits for it"
        asked.append(answer)
        told: Future[None] = Future()
        answer.add_done_callback(lambda _: told.set_result(None))
        return told

    desk.serve(tell, lambda: True)
    assert [answer.result(0) for answer in asked] == ["done"]
    assert desk.submit(lambda: "late") is None
