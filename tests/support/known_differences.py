"""Answers that are not Kafka 4.3.1's, each with its reason; docs/COMPATIBILITY.md tells users.

The tables hold only what truly differs: tests fail for an entry that does not any more.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Difference(NamedTuple):
    ours: tuple[int, ...] | str
    """The error codes of our answer, or what happened instead of one."""
    reason: str
    varies: bool = False
    """Depends on timing: sometimes the answers are equal."""
    or_else: tuple[int, ...] | None = None


Key = tuple[str | None, str | None]
"""The API and the note of a recorded call, or the client's run and the API."""

NO_COORDINATOR: Final = "a node without a coordinator, as only tests have it"
MORE_RECORDS: Final = "more was appended before, because records are not looked into"
OTHER_RUNS: Final = "transactional ids of other runs are there"
MADE_BEFORE: Final = "the recorded broker knew transactional ids of earlier calls"
BETTER_CODE: Final = "Kafka fails without foreseeing it and answers -1"
NO_CLIENT_METRICS: Final = "there are no client metrics subscriptions (KIP-714)"
OTHER_WORDS: Final = "the same code in other words"
OPAQUE: Final = "records are not looked into unless a rule of the topic is about them"
NEGATIVE_IS_NONE: Final = "a negative limit is read as 0, where Kafka fails and answers -1"
EACH_ANSWERED: Final = "every batch is appended and answered, where Kafka drops all but the last"

WITHOUT_COORDINATOR: Final[dict[Key, Difference]] = {
    ("InitProducerId", "init"): Difference((15,), NO_COORDINATOR),
    ("InitProducerId", "fence: InitProducerId while open"): Difference((15,), NO_COORDINATOR),
    ("InitProducerId", "again"): Difference((15,), NO_COORDINATOR),
}
TRANSACTIONS: Final[dict[Key, Difference]] = {
    ("ListTransactions", "unknown state filter"): Difference((0,), MADE_BEFORE),
    ("ListTransactions", "duration -2"): Difference((0,), MADE_BEFORE),
    ("DescribeProducers", "describe producers"): Difference(
        (3, 0, 3), f"{MORE_RECORDS}; {OTHER_WORDS}"
    ),
    ("Fetch", "read_committed with an open transaction"): Difference((0,), MORE_RECORDS),
    ("ListOffsets", "read_committed end offset"): Difference((0,), MORE_RECORDS),
    ("Produce", "v13"): Difference((0,), MORE_RECORDS),
    ("AddPartitionsToTxn", "v4 verifyOnly, nothing added"): Difference(
        "connection closed", "brokers ask each other over gRPC"
    ),
    ("AddPartitionsToTxn", "v5, two transactions"): Difference(
        "connection closed", "brokers ask each other over gRPC"
    ),
}
ADMINISTRATION: Final[dict[Key, Difference]] = {
    ("DescribeConfigs", "client metrics"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics unknown key"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "client metrics empty name"): Difference((42,), NO_CLIENT_METRICS),
    ("IncrementalAlterConfigs", "operation 4"): Difference((42,), BETTER_CODE),
    ("IncrementalAlterConfigs", "operation -1"): Difference((42,), BETTER_CODE),
    ("CreatePartitions", "20000"): Difference((44,), BETTER_CODE),
    ("AddRaftVoter", "static quorum"): Difference((0,), "voters can always be changed"),
    ("RemoveRaftVoter", "static quorum"): Difference((0,), "voters can always be changed"),
    ("IncrementalAlterConfigs", "cleaner threads doubled plus one"): Difference(
        (0,), "the number of cleaners may change by any factor at once"
    ),
    ("IncrementalAlterConfigs", "per-broker config on the cluster default"): Difference(
        (42,), "listeners need a restart"
    ),
    ("CreateTopics", "replication factor 2 with one broker"): Difference((38,), OTHER_WORDS),
    ("CreateTopics", "replication factor 32767 with one broker"): Difference((38,), OTHER_WORDS),
    ("CreateTopics", "config leader.replication.throttled.replicas=bad"): Difference(
        (40,), OTHER_WORDS
    ),
    ("CreateTopics", "config cleanup.policy=compact,compact"): Difference(
        (0,), "a list loses repeated entries when it is shown"
    ),
    ("CreateTopics", "config remote.storage.enable=true"): Difference(
        (40,), "there is no tiered storage; the same code in other words"
    ),
}
LIVE_ADMINISTRATION: Final[dict[Key, Difference]] = {
    ("DescribeQuorum", None): Difference(
        (0,), "voters always have a directory id, Kafka's only from kraft.version 1 on"
    ),
    ("InitProducerId", "first InitProducerId after the start: the block of producer ids is"
     " still being fetched"): Difference((0,), "the block may be there already", varies=True),
    ("AddRaftVoter", "static quorum"): Difference((127,), "voters can always be changed"),
    ("RemoveRaftVoter", "static quorum"): Difference((127,), "voters can always be changed"),
    ("AddRaftVoter", "wrong cluster id"): Difference((104,), "names this cluster"),
}  # fmt: skip
"""Seen at a node of a cluster, but not where a test plays the controller."""

DATA: Final[dict[Key, Difference]] = {
    ("Fetch", "partitionMaxBytes -1"): Difference((0,), NEGATIVE_IS_NONE),
    ("Fetch", "maxBytes -1"): Difference((0,), NEGATIVE_IS_NONE),
    ("Fetch", "isolation level 2"): Difference((42,), BETTER_CODE),
    ("Fetch", "isolation level -1"): Difference((42,), BETTER_CODE),
    ("ListOffsets", "isolation 3"): Difference((42,), BETTER_CODE),
    ("Produce", "timeout -1"): Difference((7,), "an fsync takes longer than no time"),
    ("Produce", "null records"): Difference("response", "Kafka never answers"),
    ("Produce", "codec 5"): Difference((76,), BETTER_CODE),
    ("Produce", "codec 6"): Difference((76,), BETTER_CODE),
    ("Produce", "codec 7"): Difference((76,), BETTER_CODE),
    ("Produce", "the same partition twice"): Difference((0, 0), EACH_ANSWERED),
    ("Produce", "the same topic twice"): Difference((0, 0), EACH_ANSWERED),
    **{
        ("Produce", note): Difference((0,), OPAQUE)
        for note in (
            "recordsCount 1 but two records",
            "record length larger than the batch",
            "record length too small",
            "record length -1",
            "two spare bytes inside the record",
            "header count -1",
            "header count 5, none present",
            "header with null key",
            "record bytes all ff",
            "gzip bit, not gzip data",
            "snappy bit, not snappy data",
            "lz4 bit, not lz4 data",
            "zstd bit, not zstd data",
            "gzip stream cut",
            "gzip bit, no data",
            "gzip, count 3 but two records",
            "gzip, count 1 but two records",
            "gzip, offset deltas 1,0",
        )
    },
}
GROUPS: Final[dict[Key, Difference]] = {
    ("FindCoordinator", "key type 5"): Difference((42,), OTHER_WORDS),
    ("FindCoordinator", "key type -1"): Difference((42,), OTHER_WORDS),
    ("FindCoordinator", "v2, key type 9"): Difference((42,), OTHER_WORDS),
}
WIRE: Final[dict[Key, Difference]] = {
    ("java-admin", "DescribeQuorum"): LIVE_ADMINISTRATION["DescribeQuorum", None],
    ("kafka-python-admin", "DescribeQuorum"): LIVE_ADMINISTRATION["DescribeQuorum", None],
    ("java-admin", "InitProducerId"): Difference(
        (0,), "the block of producer ids may be there already", varies=True
    ),
    **{
        # Its topic is of both policies at that time, and Kafka's cleaner does the same.
        ("java-admin", api): Difference(
            (0,), "the cleaner may have let go of its records, which are of 2023", varies=True
        )
        for api in ("ListOffsets", "DeleteRecords")
    },
    ("java-admin", "ListTransactions"): Difference((0,), OTHER_RUNS),
    ("kafka-python-admin", "ListTransactions"): Difference((0,), OTHER_RUNS),
    **{
        (f"{client}-transaction", "AddPartitionsToTxn"): Difference(
            (), "the markers of the transaction before may be there already", varies=True
        )
        for client in ("aiokafka", "confluent", "kafka-python")
    },
    ("aiokafka-admin", "DeleteRecords"): Difference(
        (1,), "what was written with acks=1 may not be fsynced yet", varies=True
    ),
}
