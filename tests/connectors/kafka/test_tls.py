"""Kafka over TLS: a broker with a certificate of its own, which clients are told to trust, or are not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.kafka import KafkaOffsets, KafkaSink, KafkaSource
from penstock.connectors.records.raw import RawFormat
from penstock.engine.errors import ConfigurationError
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.test_refusals import sasl

RAW = RawFormat("v", "string")
TOPIC = "over-tls"
_SECRET = "changeit"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the broker shows, for 127.0.0.1; clients trust it. Beside it the broker's key store."""
    folder = tmp_path_factory.mktemp("tls")
    store = ["-alias", "broker", "-keystore", str(folder / "broker.p12"), "-storepass", _SECRET]
    name = ["-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1", "-keyalg", "RSA"]
    trusted = folder / "trusted.pem"
    for arguments in (
        ["-genkeypair", *store, *name, "-storetype", "PKCS12"],
        ["-exportcert", *store, "-rfc", "-file", str(trusted)],
    ):
        # It comes with the Java that Kafka needs.
        subprocess.run(["keytool", *arguments], check=True, capture_output=True)
    return trusted


@pytest.fixture(scope="module")
def secured(kafka: Kafka, certificate: Path) -> Iterator[Kafka]:
    """A broker whose listener for users speaks TLS; `kafka` has seen to it that brokers can be had."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.sasl.ssl.keystore.type": "PKCS12",
        "listener.name.sasl.ssl.keystore.location": str(certificate.with_name("broker.p12")),
        "listener.name.sasl.ssl.keystore.password": _SECRET,
        "listener.name.sasl.ssl.key.password": _SECRET,
    }
    with Kafka(settings=settings) as own:
        own.create_topic(TOPIC)
        yield own


def test_rows_go_to_a_topic_and_come_back_encrypted(secured: Kafka, certificate: Path) -> None:
    options = tls(secured) | {"ssl_cafile": str(certificate)}
    env = ps.StreamEnvironment(runtime="local", parallelism=1)
    words = env.from_collection([{"v": "to"}, {"v": "be"}])
    words.sink_to(KafkaSink(secured.sasl_bootstrap_servers, TOPIC, format=RAW, options=options))
    env.execute("to Kafka")
    source = KafkaSource(
        secured.sasl_bootstrap_servers, TOPIC, format=RAW, until=KafkaOffsets.latest(), options=options
    )
    assert [row["v"] for row in env.from_source(source).collect()] == ["to", "be"]


def test_a_broker_that_nobody_vouches_for_is_refused(secured: Kafka) -> None:
    source = KafkaSource(secured.sasl_bootstrap_servers, TOPIC, format=RAW, options=tls(secured))
    with pytest.raises(ConfigurationError, match=r"no Kafka broker can be used at .*ssl options"):
        source.splits(1)


def tls(kafka: Kafka) -> dict[str, str]:
    return sasl(kafka.user_name, kafka.password) | {"security_protocol": "SASL_SSL"}
