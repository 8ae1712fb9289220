"""Kafka over TLS: a broker with a certificate of its own, which clients are told to trust, or are not."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import penstock as ps
from penstock.connectors.kafka import KafkaOffsets, KafkaSink, KafkaSource
from penstock.connectors.records.raw import RawFormat
from penstock.engine.errors import ConfigurationError
from penstock.testing.services.kafka import Kafka
from penstock.testing.services.servers import HOST
from tests.connectors.kafka.test_refusals import sasl

RAW = RawFormat("v", "string")
TOPIC = "over-tls"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the broker shows, for 127.0.0.1; clients trust it. Beside it the broker's key store."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    trusted = folder / "trusted.pem"
    trusted.write_bytes(made.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "broker.pem").write_bytes(secret + trusted.read_bytes())
    return trusted


@pytest.fixture(scope="module")
def secured(kafka: Kafka, certificate: Path) -> Iterator[Kafka]:
    """A broker whose listener for users speaks TLS; `kafka` has seen to it that brokers can be had."""
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "listener.name.sasl.ssl.keystore.type": "PEM",
        "listener.name.sasl.ssl.keystore.location": str(certificate.with_name("broker.pem")),
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
