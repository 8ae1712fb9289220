"""Kafka brokers (KRaft, no ZooKeeper) for tests and developers.

Started by the fixture `kafka` and by `python -m penstock.testing.services`. Each broker is a controller too. Data lives
until `stop`; time-outs and internal topics are sized for tests: small, quick, and replicated only among three brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final

from penstock.engine.errors import ConfigurationError
from penstock.testing.services.kafka_metadata import registered_brokers
from penstock.testing.services.processes import ServiceNotInstalledError, ServiceStartError
from penstock.testing.services.servers import (
    HOST,
    INSTALL,
    Server,
    ask,
    cache_folder,
    find_program,
    free_port,
    write_private,
)

# install-services reads these two lines.
KAFKA_VERSION = "4.1.0"
SLF4J_VERSION = "1.7.36"

_JAVA_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC")
_REGISTRATION_SECONDS: Final = 120.0
_ASK_EVERY: Final = 0.05


class KafkaBroker(Server):
    """One broker of a `Kafka`, which makes them.

    Args:
        node: its id, from 1.
        cluster: id of the cluster.
        passwords: of the SASL users, by name; the first may do everything.
        settings: broker settings beside ours, by their names in server.properties.

    Attributes:
        port, sasl_port, controller_port: where it listens.
    """

    name: ClassVar[str] = "kafka"

    def __init__(self, node: int, cluster: str, passwords: Mapping[str, str], settings: Mapping[str, str]) -> None:
        self.node: Final = node
        self.port: Final = free_port(self)
        self.sasl_port: Final = free_port(self)
        self.controller_port: Final = free_port(self)
        self._cluster = cluster
        self._passwords = passwords
        self._settings = settings
        self._voters: Sequence[KafkaBroker] = (self,)

    def join(self, voters: Sequence[KafkaBroker]) -> None:
        """Say who forms the cluster, this broker included; before the first start."""
        self._voters = voters

    def addresses(self) -> dict[str, str]:
        return {"bootstrap_servers": f"{HOST}:{self.port}", "sasl_bootstrap_servers": f"{HOST}:{self.sasl_port}"}

    def registered_brokers(self) -> set[int]:
        """Ids of the brokers that this one knows to be alive.

        Raises:
            OSError: it does not answer.
        """
        found: set[int] = set()

        def talk(connection: socket.socket) -> bool:
            found.update(registered_brokers(connection))
            return True

        ask(self.port, talk)
        return found

    def check_installed(self) -> None:
        find_program("java")
        if not _jars().is_dir():
            raise ServiceNotInstalledError(
                f"Kafka {KAFKA_VERSION} is not installed ({_jars()} is missing): run {INSTALL} in the checkout"
            )

    def _prepare(self, folder: Path) -> None:
        settings = {**self._our_settings(folder), **self._settings}
        path = folder / "server.properties"
        write_private(path, "".join(f"{key}={value}\n" for key, value in settings.items()))
        arguments = ["format", "--cluster-id", self._cluster, "--config", str(path)]
        self._run([*_java(), "kafka.tools.StorageTool", *arguments])

    def _command(self, folder: Path) -> Sequence[str]:
        return [*_java(), "kafka.Kafka", str(folder / "server.properties")]

    def _is_ready(self) -> bool:
        return self.node in self.registered_brokers()

    def _our_settings(self, folder: Path) -> dict[str, str]:
        brokers = len(self._voters)
        replicas, enough = str(min(brokers, 3)), "2" if brokers > 2 else "1"
        ports = {"PLAINTEXT": self.port, "SASL": self.sasl_port, "CONTROLLER": self.controller_port}
        listeners = [f"{name}://{HOST}:{port}" for name, port in ports.items()]
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node),
            "controller.quorum.voters": ",".join(f"{v.node}@{HOST}:{v.controller_port}" for v in self._voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "advertised.listeners": ",".join(listeners[:2]),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": _plain_login(self._passwords),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{next(iter(self._passwords))}",
            "log.dirs": str(folder / "data"),
            "default.replication.factor": replicas,
            "min.insync.replicas": enough,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": enough,
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": enough,
            "share.coordinator.state.topic.num.partitions": "1",
            # A topic that is not there is an error that tests want to see.
            "auto.create.topics.enable": "false",
            # Rows of tests often bear old times: by default those are deleted, minutes later, when a week has passed.
            "log.retention.ms": "-1",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            # The default takes a quarter of the heap.
            "log.cleaner.dedupe.buffer.size": str(16 << 20),
        }


class Kafka:
    """A Kafka cluster: one broker, or more for tests of failover.

    A topic must be made before it is used. The plain listener asks nobody who he is and lets everybody do everything;
    the other one (SASL_PLAINTEXT, mechanism PLAIN) knows the users below.

    Args:
        brokers: how many.
        settings: broker settings beside ours, by their names in server.properties.

    Attributes:
        brokers: each can be killed, restarted and paused on its own.
        bootstrap_servers: `host:port` of the plain listeners, with commas.
        sasl_bootstrap_servers: those of the listeners that ask for user and password.
        user_name, password: of a user who may do everything.
        guest_name, guest_password: of a user who may do nothing, for tests of missing permissions.

    Example:
        >>> with Kafka() as kafka:
        ...     kafka.create_topic("clicks", partitions=4)
        ...     kafka.restart()
    """

    name: ClassVar[str] = "kafka"

    def __init__(self, brokers: int = 1, *, settings: Mapping[str, str] | None = None) -> None:
        if brokers < 1:
            raise ConfigurationError(f"Kafka(brokers={brokers}): a cluster has one broker or more")
        self.user_name: Final = "penstock"
        self.password: Final = secrets.token_hex(12)
        self.guest_name: Final = "guest"
        self.guest_password: Final = secrets.token_hex(12)
        passwords = {self.user_name: self.password, self.guest_name: self.guest_password}
        cluster = _cluster_id()
        self.brokers: Final = tuple(
            KafkaBroker(node, cluster, passwords, settings or {}) for node in range(1, brokers + 1)
        )
        for broker in self.brokers:
            broker.join(self.brokers)
        self.bootstrap_servers: Final = ",".join(self._listeners("bootstrap_servers"))
        self.sasl_bootstrap_servers: Final = ",".join(self._listeners("sasl_bootstrap_servers"))

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def addresses(self) -> dict[str, str]:
        """How to reach the cluster, credentials included."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "sasl_bootstrap_servers": self.sasl_bootstrap_servers,
            "user": self.user_name,
            "password": self.password,
            "guest": self.guest_name,
            "guest_password": self.guest_password,
        }

    def start(self) -> None:
        """Start all brokers and wait until each knows all.

        Raises:
            ServiceNotInstalledError: Java or Kafka is missing.
            ServiceStartError: a broker ended, or they have not found each other after a minute.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            # A controller needs a majority before it answers, so none is waited for until all are launched.
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.await_ready()
            self._await_registrations()
            undo.pop_all()

    def stop(self) -> None:
        """End the cluster and remove its data. Twice is as good as once."""
        for broker in self.brokers:
            broker.stop()

    def kill(self) -> None:
        """Kill all brokers at once; `start` brings them back with the data that they had."""
        for broker in self.brokers:
            broker.kill()

    def restart(self) -> None:
        """Restart one broker after the other, with their data and on their ports."""
        for broker in self.brokers:
            broker.restart()
        self._await_registrations()

    def pause(self) -> None:
        """Stop the processes of all brokers (SIGSTOP): connections stay open, nothing is answered."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """Resume the processes of all brokers."""
        for broker in self.brokers:
            broker.resume()

    def create_topic(self, topic: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Make a topic and wait until it can be used.

        Args:
            topic: its name.
            partitions: how many.
            settings: of the topic, for instance `{"max.message.bytes": "67108864"}`.

        Raises:
            aiokafka.errors.KafkaError: the brokers refuse, for instance because there is one of that name.
        """
        asyncio.run(self._create_topic(topic, partitions, dict(settings or {})))

    async def _create_topic(self, topic: str, partitions: int, settings: dict[str, str]) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            await admin.start()
            new = NewTopic(topic, partitions, min(len(self.brokers), 3), topic_configs=settings)
            await asyncio.wait_for(_created(admin, new), _REGISTRATION_SECONDS)
            while not await _has_leaders(admin, topic, partitions):
                await asyncio.sleep(_ASK_EVERY)
        finally:
            await admin.close()

    def _await_registrations(self) -> None:
        everybody = {broker.node for broker in self.brokers}
        deadline = time.monotonic() + _REGISTRATION_SECONDS
        while any(broker.registered_brokers() != everybody for broker in self.brokers):
            if time.monotonic() > deadline:
                raise ServiceStartError(
                    f"the brokers of kafka have not found each other in {_REGISTRATION_SECONDS:.0f} s. "
                    f"The end of the log of the first:\n{self.brokers[0].log_tail()}"
                )
            time.sleep(_ASK_EVERY)

    def _listeners(self, kind: str) -> Iterator[str]:
        return (broker.addresses()[kind] for broker in self.brokers)


async def _created(admin: Any, topic: Any) -> None:
    """Make the topic, once brokers that have just started take part.

    aiokafka trips over one that names none yet, and so no controller; a controller has no use for those that it has not
    heard of ("fenced").

    Raises:
        aiokafka.errors.KafkaError: the brokers refuse.
    """
    from aiokafka.errors import InvalidReplicationFactorError, for_code

    while True:
        with contextlib.suppress(AttributeError):
            answer = await admin.create_topics([topic], timeout_ms=30_000)
            ((name, code, *message),) = answer.topic_errors
            if not code:
                return
            error = for_code(code)(f"topic {name}: {message}")
            if not isinstance(error, InvalidReplicationFactorError):
                raise error
        await asyncio.sleep(_ASK_EVERY)


async def _has_leaders(admin: object, topic: str, partitions: int) -> bool:
    (described,) = await admin.describe_topics([topic])  # type: ignore[attr-defined]
    found = described["partitions"]
    return len(found) == partitions and all(partition["leader"] >= 0 for partition in found)


def _jars() -> Path:
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def _java() -> list[str]:
    return [str(find_program("java")), *_JAVA_OPTIONS, "-cp", f"{_jars()}/*"]


def _cluster_id() -> str:
    # As Kafka's Uuid prints itself; one that began with a dash would be taken for an option.
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


def _plain_login(passwords: Mapping[str, str]) -> str:
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
