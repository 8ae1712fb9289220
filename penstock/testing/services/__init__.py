"""Real servers for tests and developers: Kafka, PostgreSQL, Redis and S3, on free ports of the loopback interface.

`with Kafka() as kafka:` starts one; so does `python -m penstock.testing.services`, for all. Each is started with
credentials and an empty data folder, and both are gone when the process that started it ends, even if it is killed.
"""

from penstock.testing.services.kafka import Kafka, KafkaBroker
from penstock.testing.services.postgres import Postgres
from penstock.testing.services.processes import ServiceNotInstalledError, ServiceStartError
from penstock.testing.services.redis import Redis
from penstock.testing.services.s3 import S3

__all__ = ["S3", "Kafka", "KafkaBroker", "Postgres", "Redis", "ServiceNotInstalledError", "ServiceStartError"]
