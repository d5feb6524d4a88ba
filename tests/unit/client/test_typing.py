"""A user's program under mypy, strict: what is right passes, what is wrong is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
from typing import Any

from tidelog.client import (
    Admin, Consumer, Producer, RebalanceListener, RecordMetadata, TopicPartition,
    TransactionalProducer, json_deserializer, str_deserializer, str_serializer, sync,
)

CONFIG = {"bootstrap.servers": "localhost:9092", "linger.ms": 5, "enable.idempotence": True}


class Listener(RebalanceListener):
    async def on_assigned(self, partitions: list[TopicPartition]) -> None:
        print(partitions[0].topic)


async def main() -> None:
    async with Producer(CONFIG) as plain:
        where: RecordMetadata = await plain.send("t", b"v", key=b"k", headers={"h": b"x"})
        print(where.offset + 1)
    async with Producer(CONFIG, value_serializer=str_serializer) as texts:
        reveal_type(texts)  # A
        await (await texts.enqueue("t", "text", key=b"k"))
        await texts.send("t", b"bytes")  # B
    async with TransactionalProducer(CONFIG, key_serializer=str_serializer) as producer:
        reveal_type(producer)  # C
        async with producer.transaction() as transaction:
            await transaction.send("t", b"v", key="k", partition=0)
            await transaction.enqueue("t", b"v", key=b"k")  # G
            await transaction.send("t", b"v", kye="k")  # H
    async with Consumer(CONFIG, key_deserializer=str_deserializer) as consumer:
        await consumer.subscribe(["t"], Listener())
        async for record in consumer:
            reveal_type(record.key)  # D
            reveal_type(record.value)  # E
        await consumer.seek(TopicPartition("t", 0), "start")  # F
    async with Admin(CONFIG) as admin:
        await admin.create_topic("t", 3, configs={"retention.ms": 5000, "preallocate": True})
        await admin.set_topic_configs("t", {"retention.ms": None, "cleanup.policy": "compact"})
        print((await admin.describe_topic("t")).partitions[0].leader)


def blocking() -> None:
    with sync.Consumer(CONFIG, value_deserializer=json_deserializer) as consumer:
        for record in consumer:
            found: Any = record.value
            print(found)
    with sync.Producer(CONFIG) as producer:
        print(producer.enqueue("t", b"x").result().partition)
"""


def test_a_users_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "program.py"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    marks = {
        number: line.rsplit("# ", 1)[1]
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if line.rstrip()[-3:-1] == "# "
    }
    said: dict[str, str] = {}
    for line in found.stdout.splitlines():
        if line.startswith("program.py:"):
            said.setdefault(marks.get(int(line.split(":")[1]), line), line)
    assert sorted(said) == ["A", "B", "C", "D", "E", "F", "G", "H"], found.stdout
    assert 'Producer[bytes, str]"' in said["A"].replace("builtins.", "")
    assert 'expected "str | None"' in said["B"]
    assert 'TransactionalProducer[str, bytes]"' in said["C"].replace("builtins.", "")
    assert '"str | None"' in said["D"].replace("builtins.", "")
    assert '"bytes | None"' in said["E"].replace("builtins.", "")
    assert "incompatible type" in said["F"]
    assert 'expected "str | None"' in said["G"]
    assert 'Unexpected keyword argument "kye"' in said["H"]
