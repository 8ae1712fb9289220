"""Redis as a sink and as a table to look rows up in.

Programs use the two classes; the other modules are their parts. redis-py is the extra `redis` and is imported where the
server is first asked.
"""

from penstock.connectors.redis.lookup import RedisLookup
from penstock.connectors.redis.sink import RedisSink

__all__ = ["RedisLookup", "RedisSink"]
