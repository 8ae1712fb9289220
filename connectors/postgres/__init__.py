"""PostgreSQL as a sink, a source and a table to look rows up in.

Programs use the three classes; the other modules are their parts. psycopg is the extra `postgres` and is imported where
the server is first asked.
"""

from penstock.connectors.postgres.lookup import PostgresLookup
from penstock.connectors.postgres.sink import PostgresSink
from penstock.connectors.postgres.source import PostgresSource

__all__ = ["PostgresLookup", "PostgresSink", "PostgresSource"]
