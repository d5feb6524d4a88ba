"""Honest clients of both protocols against the machine, with lost and slow writes and new
coordinators.

Some clients say no more than they must, and may not wait for an answer and go on as before it.
Whatever happens: no partition has two owners among the members, nor in one epoch, whoever told it;
memory is what the log says, compacted or not, and when the trouble is over the group comes to rest
with everything assigned.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.coordinator.classic import events as e
from tidelog.coordinator.classic_group import GroupSettings
from tidelog.coordinator.consumer.context import ConsumerGroupSettings, GroupContext
from tidelog.coordinator.consumer.events import ConsumerHeartbeat, Effect, RespondConsumer
from tidelog.coordinator.consumer.topics import KnownTopics, TopicInfo
from tidelog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState
from tidelog.coordinator.consumer_records import ConsumerRecord
from tidelog.coordinator.groups import Groups
from tidelog.coordinator.records import GroupRecord, decode_record, encode_record
from tidelog.coordinator.subscriptions import Subscription, decode_assignment, encode_subscription
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import PartitionIndex, TopicPartition, Uuid

G = "g"
NAMES = ("t", "u")
FEW = settings(derandomize=True, max_examples=400, deadline=None)
START_AGAIN = {
    ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID,
}  # fmt: skip
Place = tuple[str, int]
Log = list[tuple[bytes, bytes | None]]


def topic_id(name: str) -> Uuid:
    return Uuid(name.encode() * 16)


@dataclass
class Client:
    """Does as the protocol says: has what it was told last, and gives up before it says so."""

    name: str
    topics: tuple[str, ...]
    is_classic: bool
    is_terse: bool = False
    """Says only what is new, also after an answer that it did not hear."""
    member_id: str = ""
    epoch: int = 0
    owned: set[Place] = field(default_factory=set)
    waits: int | None = None
    wants_sync: bool = False
    """A classic one has joined and fetches its assignment next."""
    has_joined: bool = False
    sends: tuple[tuple[str, ...], set[Place]] = ((), set())
    """The topics and partitions that the request under way tells of."""
    said: tuple[tuple[str, ...], set[Place]] = ((), set())
    """Those that were heard of."""

    def start_again(self) -> None:
        self.epoch, self.owned, self.wants_sync, self.has_joined = 0, set(), False, False
        if self.is_classic:
            self.member_id = ""


class World:
    def __init__(self) -> None:
        self.counts = {"t": 3, "u": 2}
        self.version = 1
        self.groups = self.new_groups()
        self.log: Log = []
        self.next = self.new_groups()
        """A coordinator that has read the log so far: the next one, if there were a failover."""
        self.pending: list[e.Append] = []
        self.slow: set[int] = set()
        """Of those, whom nobody waits for any more: they are in the log or go with the leader."""
        self.told: dict[tuple[int, Place], str] = {}
        """Who was told that it has a partition, by epoch."""
        self.now_ms = 0
        self.requests = 0
        self.clients: dict[str, Client] = {}
        self.asked: dict[int, Client] = {}

    def topics(self) -> KnownTopics:
        infos = [TopicInfo(topic_id(name), name, count) for name, count in self.counts.items()]
        return KnownTopics(infos, self.version)

    def new_groups(self) -> Groups:
        own = ConsumerGroupSettings(assignment_interval_ms=1_000)
        context = GroupContext(own, self.topics())
        return Groups.empty(GroupSettings(initial_rebalance_delay_ms=0), context)

    # --- what clients do -----------------------------------------------------------------------

    def send(self, client: Client) -> None:
        if client.waits is not None:
            return
        self.requests += 1
        client.waits = self.requests
        self.asked[self.requests] = client
        if not client.is_classic:
            request: object = self.heartbeat(client)
        elif client.wants_sync:
            request = e.SyncGroup(
                self.requests, client.member_id, None, client.epoch, None, None, self.nothing()
            )
        elif client.has_joined:
            request = e.Heartbeat(self.requests, client.member_id, None, client.epoch)
        else:
            request = self.join(client)
        self.carry_out(self.groups.handle(self.now_ms, G, request))  # type: ignore[arg-type]

    def heartbeat(self, client: Client) -> ConsumerHeartbeat:
        client.member_id = client.name
        client.sends = client.topics, set(client.owned)
        owned = {name: [i for t, i in sorted(client.owned) if t == name] for name in NAMES}
        whole = ConsumerHeartbeat(
            self.requests, client.name, client.epoch, None, None, 20_000, client.topics, None, None,
            tuple((topic_id(name), tuple(found)) for name, found in owned.items() if found),
        )  # fmt: skip
        if not client.is_terse or client.epoch == 0:
            return whole
        topics, places = client.said
        return replace(
            whole,
            rebalance_timeout_ms=-1,
            topic_names=None if topics == client.topics else client.topics,
            owned=None if places == client.owned else whole.owned,
        )

    def join(self, client: Client) -> e.JoinGroup:
        owned = tuple(TopicPartition(t, PartitionIndex(i)) for t, i in sorted(client.owned))
        said = encode_subscription(Subscription(client.topics, owned))
        return e.JoinGroup(
            self.requests, client.member_id, None, client.name, "/h", 45_000, 20_000, "consumer",
            (e.Protocol("range", said),), str(self.requests), needs_member_id=False,
        )  # fmt: skip

    def nothing(self) -> tuple[tuple[str, bytes], ...]:
        """A leader that is as lazy as can be: nobody gets anything of it."""
        return ()

    def hear(self, client: Client, effect: Effect) -> None:
        client.waits = None
        match effect:
            case RespondConsumer(_, result):
                if result.error in START_AGAIN:
                    client.start_again()
                elif result.error is ErrorCode.NONE and result.member_epoch >= 0:
                    client.said = client.sends
                    client.epoch = result.member_epoch
                    self.check_replicated(client)
                    if result.assignment is not None:
                        client.owned = {
                            (chr(each.topic_id.raw[0]), index)
                            for each in result.assignment
                            for index in each.partitions
                        }
                    self.note_owned(client)
            case e.Respond(_, e.JoinResult() as joined):
                if joined.error is ErrorCode.NONE:
                    client.member_id, client.epoch = joined.member_id, joined.generation
                    client.wants_sync = client.has_joined = True
                elif joined.error in START_AGAIN:
                    client.start_again()
            case e.Respond(_, e.SyncResult() as synced):
                if synced.error is ErrorCode.NONE:
                    given = decode_assignment(synced.assignment) if synced.assignment else None
                    client.owned = {
                        (each.topic, int(each.partition)) for each in given.partitions
                    } if given else set()  # fmt: skip
                    client.wants_sync = False
                else:
                    self.rejoin(client, synced.error)
            case e.Respond(_, e.HeartbeatResult(error)):
                if error is not ErrorCode.NONE:
                    self.rejoin(client, error)
            case _:
                raise AssertionError(effect)

    def check_replicated(self, client: Client) -> None:
        """A coordinator that takes over now knows what the client was told."""
        group = self.next.get(G)
        member = group.member(client.name) if isinstance(group, ConsumerGroup) else None
        assert member is not None and member.epoch == client.epoch, f"{client} is {member}"

    def note_owned(self, client: Client) -> None:
        for place in client.owned:
            owner = self.told.setdefault((client.epoch, place), client.name)
            assert owner == client.name, f"{place}@{client.epoch}: {client.name} and {owner}"

    def rejoin(self, client: Client, error: ErrorCode) -> None:
        client.wants_sync = client.has_joined = False
        if error in START_AGAIN:
            client.start_again()

    def leave(self, client: Client) -> None:
        del self.clients[client.name]
        self.requests += 1
        if client.is_classic:
            left: object = e.LeaveGroup(self.requests, (e.Leaver(client.member_id),))
        else:
            left = ConsumerHeartbeat(self.requests, client.name, -1)
        self.carry_out(self.groups.handle(self.now_ms, G, left))  # type: ignore[arg-type]

    # --- the coordinator's surroundings --------------------------------------------------------

    def carry_out(self, effects: list[Effect]) -> None:
        if not isinstance(self.groups.get(G), ConsumerGroup):
            self.told.clear()  # epochs begin anew when it is of the consumer protocol again
        for effect in effects:
            if isinstance(effect, e.Append):
                self.pending.append(effect)
            else:
                client = self.asked.pop(effect.request_id, None)
                if client is not None and client.waits == effect.request_id:
                    self.hear(client, effect)

    def write(self) -> None:
        """The oldest write is replicated, late or not."""
        if self.pending:
            append = self.pending.pop(0)
            self.replicate(append)
            if append.write_id in self.slow:
                done = self.groups.append_late(self.now_ms, G, append.write_id)
            else:
                done = self.finish(append, ErrorCode.NONE)
            self.carry_out(done)

    def replicate(self, append: e.Append) -> None:
        written = [encode_record(record) for record in append.records]
        self.log += written
        self.load(self.next, written)

    def finish(self, append: e.Append, error: ErrorCode) -> list[Effect]:
        return self.groups.append_finished(self.now_ms, G, append.write_id, error)

    def waited_for(self) -> e.Append | None:
        """The oldest write that somebody may wait for."""
        return next((each for each in self.pending if each.write_id not in self.slow), None)

    def lose(self) -> None:
        """A write is refused, perhaps behind slow ones that were not."""
        if append := self.waited_for():
            self.pending.remove(append)
            self.carry_out(self.finish(append, ErrorCode.NOT_ENOUGH_REPLICAS))

    def delay(self) -> None:
        if append := self.waited_for():
            self.slow.add(append.write_id)
            self.carry_out(self.groups.append_delayed(self.now_ms, G, append.write_id))

    def pass_time(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while (due := self.groups.next_deadline_ms()) is not None and due <= end_ms:
            self.now_ms = max(due, self.now_ms)
            self.carry_out(self.groups.expire(self.now_ms))
        self.now_ms = end_ms

    def fail_over(self) -> None:
        """Another coordinator reads the log; what was under way never gets there."""
        self.carry_out(self.groups.unload(self.now_ms))
        self.pending.clear()
        self.slow.clear()
        for client in self.clients.values():
            client.waits = None
        self.groups = self.loaded(self.log)

    def loaded(self, log: Log) -> Groups:
        groups = self.new_groups()
        self.load(groups, log)
        return groups

    def load(self, groups: Groups, log: Log) -> None:
        for key, value in log:
            record = decode_record(key, value)
            assert isinstance(record, GroupRecord | ConsumerRecord)
            groups.load(record, self.now_ms)

    # --- what must hold ------------------------------------------------------------------------

    def check(self) -> None:
        group = self.groups.get(G)
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[Place, str] = {}
        for client in self.clients.values():
            if group.member(client.member_id) is None or client.epoch == 0:
                continue  # it will hear that it is no member
            for place in client.owned:
                assert place not in owners, f"{place}: {client.name} and {owners[place]}"
                owners[place] = client.name
        if not self.pending:
            assert described(self.next) == described(self.groups)

    def check_compacted(self) -> None:
        for log in (compacted(self.log), without_tombstones(self.log)):
            assert described(self.loaded(log)) == described(self.next)

    def send_all(self, in_vain: Container[str] = ()) -> None:
        """Those who send ``in_vain`` do not hear the answer, if they are of the terse kind."""
        for client in list(self.clients.values()):
            self.send(client)
            if client.name in in_vain and client.is_terse and not client.is_classic:
                client.waits = None
            while self.pending:
                self.write()
        self.pass_time(1_500)

    def settle(self, rounds: int = 40) -> None:
        for _ in range(rounds):
            self.send_all()
            self.check()


def described(groups: Groups) -> tuple[object, ...]:
    group = groups.get(G)
    if not isinstance(group, ConsumerGroup):
        return (None if group is None else group.describe(),)
    members = sorted(map(str, group.describe().members))
    return group.epoch, group.target_epoch, members


def compacted(log: Log) -> Log:
    """Of each key the last record, where it stands."""
    last = {key: at for at, (key, _) in enumerate(log)}
    return [log[at] for at in sorted(last.values())]


def without_tombstones(log: Log) -> Log:
    return [(key, value) for key, value in compacted(log) if value is not None]


ACTIONS = st.one_of(
    st.tuples(
        st.just("come"),
        st.sampled_from("abcd"),
        st.sampled_from([("t",), ("u",), NAMES]),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("send and not wait"), st.sampled_from("abcd")),
    *(st.tuples(st.just("send"), st.sampled_from("abcd")) for _ in range(4)),
    st.tuples(st.just("write")),
    st.tuples(st.just("write")),
    st.tuples(st.just("lose")),
    st.tuples(st.just("delay")),
    st.tuples(st.just("leave"), st.sampled_from("abcd")),
    st.tuples(st.just("change"), st.sampled_from("abcd"), st.sampled_from([("t",), NAMES])),
    st.tuples(st.just("grow"), st.integers(1, 4)),
    st.tuples(st.just("pass"), st.sampled_from([100, 1_000, 15_000])),
    st.tuples(st.just("fail over")),
)


def act(world: World, action: tuple[object, ...]) -> None:
    client = world.clients.get(str(action[1])) if len(action) > 1 else None
    match action:
        case ("come", str(name), tuple(topics), bool(is_classic), bool(is_terse)) if client is None:
            world.clients[name] = Client(name, topics, is_classic, is_terse)
            world.send(world.clients[name])
        case ("send", _) if client:
            world.send(client)
        case ("send and not wait", _) if client and client.is_terse and not client.is_classic:
            world.send(client)
            client.waits = None
        case ("write",):
            world.write()
        case ("lose",):
            world.lose()
        case ("delay",):
            world.delay()
        case ("leave", _) if client:
            world.leave(client)
        case ("change", _, tuple(topics)) if client:
            client.topics = topics
        case ("grow", int(count)):
            world.counts["t"] = max(count, world.counts["t"])
            world.version += 1
            world.groups.set_topics(world.topics())
        case ("pass", int(by_ms)):
            world.pass_time(by_ms)
        case ("fail over",):
            world.fail_over()


@FEW
@given(
    st.booleans(),
    st.lists(ACTIONS, min_size=15, max_size=60),
    st.lists(st.sets(st.sampled_from("abcde")), max_size=6),
)
def test_one_owner_each_and_rest_at_the_end(
    is_at_work: bool, actions: list[tuple[object, ...]], rounds_in_vain: list[set[str]]
) -> None:
    world = World()
    for name in "abc" if is_at_work else ():
        act(world, ("come", name, NAMES, False, True))
        world.settle(5)
    for action in actions:
        act(world, action)
        world.check()
        world.check_compacted()
    act(world, ("come", "e", NAMES, False, True))
    for in_vain in rounds_in_vain:
        world.send_all(in_vain)
    world.settle()
    world.check_compacted()
    group = world.groups.get(G)
    if isinstance(group, ConsumerGroup) and world.clients:
        assert group.state is ConsumerGroupState.STABLE
        owned = [place for client in world.clients.values() for place in client.owned]
        wanted = {name for client in world.clients.values() for name in client.topics}
        assert sorted(owned) == sorted(
            (name, index) for name in wanted for index in range(world.counts[name])
        )


def test_what_a_member_has_may_stand_before_what_it_is() -> None:
    """In a compacted log, after it changed its subscription: it is not new, and has what it had."""
    world = World()
    act(world, ("come", "a", ("t",), False, False))
    world.write()
    world.clients["a"].topics = NAMES
    world.send(world.clients["a"])
    world.write()
    assert world.clients["a"].owned
    world.check()
    world.check_compacted()


def test_a_target_may_be_the_first_that_is_left_of_a_group() -> None:
    """Then the last records of somebody who left: they are not the end of the group."""
    world = World()
    for name, topic in (("a", "t"), ("b", "u")):
        act(world, ("come", name, (topic,), False, False))
        world.settle(5)
    world.leave(world.clients["b"])
    world.settle(5)
    world.clients["a"].topics = ("t", "none such")
    world.settle(5)
    world.check_compacted()
