"""`make demo-pipeline`: orders on a cluster of three nodes, and what Spark makes of them.

An hour of orders is written to a topic. Spark aggregates the revenue into another topic, archives
the orders as Parquet, takes a snapshot of the orders that are open, and audits the archive. At the
end the revenue is read back and drawn. Everything lands in build/demo-pipeline. Each step is also
a command, which is printed with it.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tidelog.pipeline.jobs.aggregate import AggregateOptions, aggregate
from tidelog.pipeline.jobs.archive import ArchiveOptions, archive
from tidelog.pipeline.jobs.audit import AuditOptions, audit
from tidelog.pipeline.jobs.records import LakePlace, TopicPlace
from tidelog.pipeline.jobs.session import make_session
from tidelog.pipeline.jobs.snapshot import SnapshotOptions, snapshot
from tidelog.pipeline.jobs.summary import Summary
from tidelog.testing.local_cluster import LocalCluster

OUTPUT = Path("build/demo-pipeline")
ORDERS = 20_000
MIDNIGHT_MS = 1_748_736_000_000  # 2025-06-01T00:00:00Z
HOUR_MS = 3_600_000
COUNTRIES = {"NO": 3, "PT": 2, "JP": 4, "CL": 1}
SCHEMA = "country STRING, amount DOUBLE, status STRING"


def main() -> int:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    with LocalCluster(3, settings={"http.listener": ""}) as cluster:
        print(f"three nodes at {cluster.bootstrap}")
        print(f"{write_orders(cluster.bootstrap):,} records about {ORDERS:,} orders")
        spark = make_session("orders", config={"spark.sql.shuffle.partitions": "4"})
        try:
            return run_pipelines(spark, cluster.bootstrap)
        finally:
            spark.stop()


def write_orders(bootstrap: str) -> int:
    """Placed, and then shipped; one in ten is cancelled, which deletes its key."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic("orders", 3, 3), NewTopic("revenue", 1, 3)]).values():
        made.result(30)
    chance = random.Random(1)
    events: list[tuple[int, str, dict[str, object] | None]] = []
    for number in range(ORDERS):
        at_ms = int(chance.betavariate(2, 3) * HOUR_MS)
        [country] = chance.choices(list(COUNTRIES), list(COUNTRIES.values()))
        order = {"country": country, "amount": round(chance.lognormvariate(3, 1), 2)}
        events.append((at_ms, f"order-{number}", {**order, "status": "placed"}))
        ended_ms = at_ms + chance.randrange(HOUR_MS // 12)
        shipped = {**order, "status": "shipped"} if chance.random() < 0.9 else None
        events.append((ended_ms, f"order-{number}", shipped))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for at_ms, key, value in sorted(events, key=lambda event: event[0]):
        text = None if value is None else json.dumps(value)
        producer.produce("orders", text, key, timestamp=MIDNIGHT_MS + at_ms)
        producer.poll(0)
    assert producer.flush(60) == 0
    return len(events)


def run_pipelines(spark: Any, bootstrap: str) -> int:
    lake, orders = str(OUTPUT / "lake"), TopicPlace(bootstrap, "orders")
    told(
        "tidelog pipeline aggregate orders --to revenue --window '2 minutes' --group-by country "
        "--metric revenue=… --schema … --checkpoint …",
        aggregate(
            spark,
            AggregateOptions(
                bootstrap,
                ("orders",),
                "revenue",
                str(OUTPUT / "checkpoint"),
                SCHEMA,
                {
                    "revenue": "sum(CASE WHEN status = 'placed' THEN amount ELSE 0 END)",
                    "orders": "count_if(status = 'placed')",
                },
                ("country",),
                window="2 minutes",
                watermark="30 seconds",
            ),
        ),
    )
    told(
        f"tidelog pipeline archive orders --lake {lake}",
        archive(spark, ArchiveOptions(bootstrap, ("orders",), lake)),
    )
    told(
        f"tidelog pipeline snapshot orders --output {OUTPUT}/open-orders",
        snapshot(spark, SnapshotOptions(orders, str(OUTPUT / "open-orders"), files=1)),
    )
    result = audit(spark, AuditOptions(orders, LakePlace(lake, "orders")))
    told(f"tidelog pipeline audit orders lake:{lake}", result.summary)
    draw(spark, bootstrap)
    return 0 if result.is_same else 1


def told(command: str, summary: Summary) -> None:
    print(f"\n$ {command}\n{summary.text()}", flush=True)


def draw(spark: Any, bootstrap: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    windows = (
        spark.read.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "revenue")
        .load()
        .selectExpr(
            "from_json(string(value), "
            "'window_start TIMESTAMP, country STRING, revenue DOUBLE') AS of"
        )
        .selectExpr("of.window_start", "of.country", "of.revenue")
        .orderBy("window_start")
        .collect()
    )
    moments = sorted({row.window_start for row in windows})
    by_country = {
        country: [
            sum(r.revenue for r in windows if (r.window_start, r.country) == (moment, country))
            for moment in moments
        ]
        for country in COUNTRIES
    }
    figure, axes = plt.subplots(figsize=(9, 4.5))
    labels = [moment.strftime("%H:%M") for moment in moments]
    axes.stackplot(labels, *by_country.values(), labels=list(by_country), alpha=0.85)
    axes.set_xticks(labels[::5])
    axes.set_title("Revenue of each two minutes, from the topic revenue")
    axes.set_ylabel("revenue")
    axes.legend(loc="upper right")
    figure.tight_layout()
    picture = OUTPUT / "revenue.png"
    figure.savefig(picture, dpi=120)
    print(f"\n{len(windows)} windows drawn in {picture}")


if __name__ == "__main__":
    sys.exit(main())
