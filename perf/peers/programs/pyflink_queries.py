"""Asks Flink SQL for queries, in streaming mode: `pyflink_queries.py ASKED ANSWERED`, both files of JSON.

ASKED has `tables` (statements) and `queries`; ANSWERED is a list of `query`, and `rows`: each row that stands in the
end, its values as Python writes them (of a map its sorted pairs), and how often; or `error`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

_SETTINGS = {"table.local-time-zone": "UTC", "parallelism.default": "1"}


def _text(value: Any) -> str:
    return repr(sorted(value.items())) if isinstance(value, dict) else repr(value)


def _answer(tables: TableEnvironment, query: str) -> dict[str, Any]:
    held: Counter[tuple[str, ...]] = Counter()
    try:
        with tables.sql_query(query).execute().collect() as rows:
            for row in rows:
                held[tuple(map(_text, row))] += 1 if str(row.get_row_kind()) in ("+I", "+U") else -1
    except Exception as error:
        return {"query": query, "error": str(error).splitlines()[-1]}
    return {"query": query, "rows": sorted([list(row), count] for row, count in (+held).items())}


def main(asked: str, answered: str) -> None:
    """Ask for all of them."""
    given = json.loads(Path(asked).read_text())
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in _SETTINGS.items():
        tables.get_config().set(name, value)
    for statement in given["tables"]:
        tables.execute_sql(statement)
    Path(answered).write_text(json.dumps([_answer(tables, query) for query in given["queries"]]))


if __name__ == "__main__":
    main(*sys.argv[1:])
