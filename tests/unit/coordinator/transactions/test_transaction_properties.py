"""Whatever clients, disks and brokers do: outcomes stand, epochs are given once, all comes to rest.

Each run is a random script against one transactional id: requests of producers old and new, writes
that succeed, fail or are late, markers that are refused, time, and failovers.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from transaction_desk import TransactionDesk, place

from tidelog.coordinator.transactions import events as e
from tidelog.coordinator.transactions.states import TRANSITIONS, TransactionState
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import ProducerEpoch, ProducerId

S = TransactionState
PLACES = [place("a"), place("b")]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "init",
                "init-named",
                "add",
                "commit",
                "abort",
                "verify",
                "written",
                "lost",
                "late",
                "marked",
                "refused",
                "time",
                "failover",
            ]
        ),
        st.integers(0, 3),
    ),
    max_size=40,
)


class Run:
    def __init__(self, version: int) -> None:
        self.desk = TransactionDesk(is_prompt=False)
        self.version = version
        self.producers: list[tuple[int, int]] = [(100, 0)]
        """Ids and epochs that were ever told to somebody, newest last."""

    def do(self, verb: str, pick: int) -> None:
        desk = self.desk
        producer_id, epoch = self.producers[-1 - pick % len(self.producers)]
        who = ProducerId(producer_id), ProducerEpoch(epoch)
        requests: dict[str, Callable[[], e.Request]] = {
            "init": lambda: e.InitProducerId(0, 5_000),
            "init-named": lambda: e.InitProducerId(0, 5_000, *who),
            "add": lambda: e.AddPartitions(0, *who, (PLACES[pick % 2],), self.version),
            "verify": lambda: e.AddPartitions(0, *who, tuple(PLACES), verify_only=True),
            "commit": lambda: e.EndTxn(0, *who, True, self.version),
            "abort": lambda: e.EndTxn(0, *who, False, self.version),
        }
        if verb in requests:
            desk.ask("tx", requests[verb]())
        elif verb == "time":
            desk.pass_time([10, 200, 5_001, 20_000][pick])
        elif verb == "failover":
            desk.fail_over()
        elif verb in ("written", "lost", "late") and desk.appends:
            self.answer_write(verb)
        elif verb in ("marked", "refused") and desk.sent:
            error = ErrorCode.NONE if verb == "marked" else ErrorCode.NOT_LEADER_OR_FOLLOWER
            desk.marked(error)
        self.learn()

    def answer_write(self, verb: str) -> None:
        desk = self.desk
        if verb == "late":
            append = desk.appends[0]
            desk.carry_out(desk.shard.append_delayed(desk.now_ms, "tx", append.write_id))
        else:
            desk.written(ErrorCode.NONE if verb == "written" else ErrorCode.NOT_ENOUGH_REPLICAS)

    def learn(self) -> None:
        for result in self.desk.results.values():
            if isinstance(result, e.InitResult | e.EndResult) and result.error is ErrorCode.NONE:
                known = (int(result.producer_id), int(result.producer_epoch))
                if known not in self.producers:
                    self.producers.append(known)

    def come_to_rest(self) -> None:
        self.desk.is_prompt = True
        self.desk.carry_out([])
        self.desk.pass_time(100_000)


def check_history(desk: TransactionDesk) -> None:
    state = S.EMPTY
    for record in desk.log:
        assert record.value is not None
        assert record.value.state in TRANSITIONS[state] or record.value.state is S.EMPTY
        state = record.value.state


@settings(derandomize=True, max_examples=400, deadline=None)
@given(STEPS, st.sampled_from([0, 2]))
def test_all_runs(steps: list[tuple[str, int]], version: int) -> None:
    run = Run(version)
    desk = run.desk
    for verb, pick in steps:
        run.do(verb, pick)
        check_history(desk)
    run.come_to_rest()
    check_history(desk)
    if len(desk.shard):
        assert desk.state() in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    assert_outcomes_stand(desk, version)
    assert_each_epoch_given_once(desk)


def assert_outcomes_stand(desk: TransactionDesk, version: int) -> None:
    """All markers of one transaction say the same, and what its record says."""
    decided: list[tuple[int, int, bool]] = []
    for record in desk.log:
        value = record.value
        if value is not None and value.state.is_prepared:
            is_commit = value.state is S.PREPARE_COMMIT
            decided.append((value.producer_id, value.producer_epoch, is_commit))
    for sent in desk.all_sent:
        assert (sent.producer_id, sent.producer_epoch, sent.committed) in decided
    if version == 2:
        outcomes: dict[tuple[int, int], bool] = {}
        for producer_id, epoch, is_commit in decided:
            assert outcomes.setdefault((producer_id, epoch), is_commit) is is_commit


def assert_each_epoch_given_once(desk: TransactionDesk) -> None:
    """A producer that begins never shares its epoch with one before it."""
    begun = [
        (record.value.producer_id, record.value.producer_epoch)
        for record, before in zip(desk.log, [None, *desk.log], strict=False)
        if record.value is not None
        and record.value.state is S.EMPTY
        and (before is None or before.value is None or not _is_same(record, before))
    ]
    assert len(begun) == len(set(begun))


def _is_same(record: object, before: object) -> bool:
    """A named producer that repeats its request is given the same again."""
    a, b = record.value, before.value  # type: ignore[attr-defined]
    return (a.producer_id, a.producer_epoch) == (b.producer_id, b.producer_epoch)
