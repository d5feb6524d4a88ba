"""Loading: sources and their precedence, the classes of names, and every error at once."""

from __future__ import annotations

import pytest
from stock_properties import STOCK_SERVER_PROPERTIES

from tidelog.kernel.settings import InvalidSettings, Link, Origin, Settings
from tidelog.kernel.settings.checks import endpoints
from tidelog.kernel.settings.load import environment_setting, load
from tidelog.kernel.settings.values import MissingSetting

MINIMAL = "node.id=1\ncontroller.quorum.voters=1@localhost:9093\n"

IMAGE_ENVIRONMENT = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_NUM_PARTITIONS": "3",
    "KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "true",
    "KAFKA_LOG_DIRS": "/var/lib/kafka/data",
}

OTHER_PEOPLES_VARIABLES = {
    "HOME": "/root",
    "PATH": "/bin",
    "KAFKA_": "x",
    "KAFKA_HEAP_OPTS": "-Xmx1G",
    "KAFKA_HOME": "/opt/kafka",
    "KAFKA_OPTS": "",
    "KAFKA_JMX_OPTS": "",
    "KAFKA_JMX_PORT": "9999",
    "KAFKA_LOG4J_OPTS": "",
    "KAFKA_LOG4J_LOGGERS": "kafka=INFO",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
    "KAFKA_GC_LOG_OPTS": "",
    "KAFKA_JVM_PERFORMANCE_OPTS": "",
    "KAFKA_DEBUG": "",
    "KAFKA_VERSION": "4.3.1",
    "KAFKA_CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_SERVICE_HOST": "10.0.0.7",
    "KAFKA_SERVICE_PORT": "9092",
    "KAFKA_SERVICE_PORT_KAFKA": "9092",
    "KAFKA_PORT": "tcp://10.0.0.7:9092",
    "KAFKA_PORT_9092_TCP": "tcp://10.0.0.7:9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.7",
    "KAFKA_PORT_9092_TCP_PROTO": "tcp",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "TIDELOG_REQUIRE": "kcat,java",
    "TIDELOG_HOME": "/opt/tidelog",
}


def errors_of(
    file_text: str = MINIMAL,
    environment: dict[str, str] | None = None,
    overrides: tuple[str, ...] = (),
) -> tuple[str, ...]:
    with pytest.raises(InvalidSettings) as refused:
        load(file_text=file_text, environment=environment, overrides=overrides)
    return refused.value.errors


def test_the_stock_file_loads() -> None:
    loaded = load(file_text=STOCK_SERVER_PROPERTIES)
    settings = loaded.settings
    assert settings.get_list("process.roles") == ("broker", "controller")
    assert settings.get_list("log.dirs") == ("/tmp/kraft-combined-logs",)
    assert settings.get_int("num.recovery.threads.per.data.dir") == 1
    assert [str(one) for one in endpoints(settings).advertised] == ["PLAINTEXT://localhost:9092"]
    assert loaded.warnings == (
        "These settings of Kafka have no effect here: inter.broker.listener.name,"
        " num.io.threads, num.network.threads, share.coordinator.state.topic.min.isr,"
        " share.coordinator.state.topic.replication.factor",
    )


def test_the_environment_of_the_image_loads() -> None:
    loaded = load(environment=IMAGE_ENVIRONMENT | OTHER_PEOPLES_VARIABLES)
    settings = loaded.settings
    assert settings.get_int("node.id") == 1
    assert settings.get_int("num.partitions") == 3
    assert settings.get_int("group.initial.rebalance.delay.ms") == 0
    assert settings.origin("num.partitions") is Origin.ENVIRONMENT
    assert len(loaded.warnings) == 1
    assert "inter.broker.listener.name" in loaded.warnings[0]


@pytest.mark.parametrize("variable", OTHER_PEOPLES_VARIABLES)
def test_other_peoples_variables_stop_nobody(variable: str) -> None:
    value = OTHER_PEOPLES_VARIABLES[variable]
    assert load(file_text=MINIMAL, environment={variable: value}).warnings == ()


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_NODE_ID", "node.id"),
        ("TIDELOG_LOG_DIRS", "log.dirs"),
        ("kafka_node_id", None),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B_C", "a-b.c"),
        ("KAFKA_A____B", "a-.b"),
        ("KAFKA_", None),
        ("NODE_ID", None),
    ],
)
def test_names_of_variables(variable: str, name: str | None) -> None:
    assert environment_setting(variable) == name


def test_precedence() -> None:
    file_text = MINIMAL + "num.partitions=2\nfetch.max.bytes=2048\nmax.connections=9\n"
    environment = {
        "KAFKA_NUM_PARTITIONS": "3",
        "TIDELOG_FETCH_MAX_BYTES": "5000",
        "KAFKA_FETCH_MAX_BYTES": "4000",
    }
    settings = load(
        file_text=file_text, environment=environment, overrides=["num.partitions=4"]
    ).settings
    assert settings.get_int("num.partitions") == 4
    assert settings.get_int("fetch.max.bytes") == 5000
    assert settings.get_int("max.connections") == 9
    assert settings.get_int("default.replication.factor") == 1
    assert settings.origin("num.partitions") is Origin.OVERRIDE
    assert settings.origin("max.connections") is Origin.FILE
    assert settings.where("max.connections") == "server.properties line 5"
    assert settings.where("fetch.max.bytes") == "environment variable TIDELOG_FETCH_MAX_BYTES"
    assert settings.origin("default.replication.factor") is Origin.DEFAULT
    assert settings.chain("num.partitions") == (
        Link("num.partitions", "4", Origin.OVERRIDE),
        Link("num.partitions", "3", Origin.ENVIRONMENT),
        Link("num.partitions", "2", Origin.FILE),
        Link("num.partitions", "1", Origin.DEFAULT),
    )


def test_the_last_of_two_lines_and_of_two_overrides_counts() -> None:
    settings = load(
        file_text=MINIMAL + "num.partitions=2\nnum.partitions=3\n",
        overrides=["max.connections=1", "max.connections=2"],
    ).settings
    assert settings.get_int("num.partitions") == 3
    assert settings.get_int("max.connections") == 2


def test_an_error_names_setting_value_source_and_what_is_allowed() -> None:
    assert errors_of(MINIMAL + "log.segment.bytes=7\n") == (
        "server.properties line 3: log.segment.bytes=7: Value must be at least 1048576"
        " (allowed: INT, [1048576,...])",
    )
    assert errors_of(environment={"KAFKA_NUM_PARTITIONS": "many"}) == (
        "environment variable KAFKA_NUM_PARTITIONS: num.partitions=many:"
        " Not a number of type INT (allowed: INT, [1,...])",
    )
    assert errors_of(overrides=("log.preallocate=yes",)) == (
        "-o: log.preallocate=yes: Expected value to be either true or false (allowed: BOOLEAN)",
    )


def test_all_errors_come_at_once_and_none_twice() -> None:
    found = errors_of(
        "node.id=one\nlog.retention.hour=5\n",
        {"KAFKA_LOG_DIRR": "/x"},
        ("broken", "authorizer.class.name=org.Acl"),
    )
    assert len(found) == 6
    assert "-o broken: must be name=value" in found
    assert any(
        "log.retention.hour=5: unknown setting; did you mean log.retention.hours?" in e
        for e in found
    )
    assert any(
        "KAFKA_LOG_DIRR: log.dirr=/x: unknown setting; did you mean log.dir" in e for e in found
    )
    assert any("refused, because there is no authorizer here" in error for error in found)
    assert any("must say where the controllers are" in error for error in found)
    assert sum("node.id" in error for error in found) == 1


def test_a_name_far_from_everything_is_still_an_error_in_a_file() -> None:
    assert errors_of(MINIMAL + "zookeeper.connect=zk:2181") == (
        "server.properties line 3: zookeeper.connect=zk:2181: unknown setting",
    )
    assert "did you mean" not in errors_of(overrides=("xyzzy=1",))[0]


def test_a_topic_setting_in_the_file_is_told_from_a_slip() -> None:
    (error,) = errors_of(MINIMAL + "retention.ms=5")
    assert "a setting of topics" in error and "log.retention.ms" in error


@pytest.mark.parametrize(
    "given",
    [
        "listeners=SSL://:9092,CONTROLLER://:9093",
        "listeners=SASL_PLAINTEXT://:9092,CONTROLLER://:9093",
        "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "security.inter.broker.protocol=SASL_SSL",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "remote.log.storage.system.enable=true",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.jaas.config=secret",
        "ssl.keystore.location=/k.jks",
        "ssl.truststore.password=secret",
        "ssl.key.password=secret",
        "ssl.client.auth=required",
        "listener.name.plaintext.ssl.keystore.location=/k.jks",
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=secret",
        "listener.name.x.sasl.enabled.mechanisms=PLAIN",
        "principal.builder.class=org.Mine",
        "replica.selector.class=org.Mine",
        "create.topic.policy.class.name=org.Mine",
        "delegation.token.secret.key=secret",
        "config.providers=file",
        "transaction.two.phase.commit.enable=true",
    ],
)
def test_promises_that_cannot_be_kept_are_refused(given: str) -> None:
    for source in ({"file_text": MINIMAL + given}, {"overrides": (given,)}):
        with pytest.raises(InvalidSettings) as refused:
            load(**({"file_text": MINIMAL} | source))
        assert len(refused.value.errors) == 1
        assert "secret" not in str(refused.value).replace("delegation.token.secret.key", "")


@pytest.mark.parametrize(
    "given",
    [
        "authorizer.class.name=",
        "remote.log.storage.system.enable=false",
        "ssl.client.auth=none",
        "ssl.endpoint.identification.algorithm=",
        "sasl.mechanism.inter.broker.protocol=GSSAPI",
        "security.inter.broker.protocol=PLAINTEXT",
        "super.users=User:admin",
        "listener.name.plaintext.max.connections=5",
        "rsm.config.dir=/x",
        "connections.max.reauth.ms=0",
        "leader.imbalance.per.broker.percentage=10",
    ],
)
def test_what_promises_nothing_is_accepted_with_a_warning(given: str) -> None:
    loaded = load(file_text=MINIMAL + given)
    name = given.partition("=")[0]
    assert loaded.warnings == (f"These settings of Kafka have no effect here: {name}",)


def test_a_promise_taken_back_by_a_stronger_source_is_no_promise() -> None:
    load(
        file_text=MINIMAL + "authorizer.class.name=org.Acl\n",
        overrides=["authorizer.class.name="],
    )


def test_the_rack_aware_selector_is_ours_too() -> None:
    name = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    loaded = load(file_text=MINIMAL + f"replica.selector.class={name}")
    assert loaded.settings.get_str("replica.selector.class") == name
    assert loaded.warnings == ()


def test_a_listener_prefix_before_an_unknown_name_is_an_error() -> None:
    assert "unknown setting" in errors_of(overrides=("listener.name.x.no.such=1",))[0]


def test_a_malformed_file_is_one_clear_error() -> None:
    found = errors_of("node.id=1\nlog.dirs=\\u12\n")
    assert found[0] == "server.properties line 2: \\u needs four hexadecimal digits"


def test_reading_settings() -> None:
    settings = Settings.of({"broker.rack": "", "log.cleaner.io.buffer.load.factor": "0.5"})
    assert settings.get_optional_str("broker.rack") is None
    assert settings.get_optional_str("metadata.log.dir") is None
    assert settings.get_double("log.cleaner.io.buffer.load.factor") == 0.5
    assert settings.get_bool("log.cleaner.enable") is True
    assert settings.get_list("log.dirs") == ("/tmp/kafka-logs",)
    assert settings.own("log.dirs") is None
    with pytest.raises(MissingSetting, match=r"node\.id"):
        settings.get_int("node.id")
    with pytest.raises(TypeError, match=r"log\.cleaner\.enable"):
        settings.get_str("log.cleaner.enable")
    with pytest.raises(KeyError):
        settings.get("no.such")
    with pytest.raises(InvalidSettings):
        Settings.of({"no.such": "1"})
