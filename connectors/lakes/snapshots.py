"""What a table of a lake holds at one moment: the Parquet files of its newest version, for sources that read them.

Tables of SQL ask for it where a job is planned; later versions are not seen by that job.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.errors import ConfigurationError, nearest


@dataclass(frozen=True, slots=True)
class LakeSnapshot:
    """The files of one version.

    Args:
        where: the table, for messages.
        files: paths or URLs of Parquet files.
        schema: the columns that are in the files.
        partitions: columns whose values are in the names of folders alone.
    """

    where: str
    files: tuple[str, ...]
    schema: pa.Schema
    partitions: tuple[str, ...] = ()

    def columns(self, names: list[str]) -> pa.Schema:
        """Some of the columns, with the types that the files have.

        Raises:
            ConfigurationError: the files do not have one.
        """
        for name in names:
            if name in self.partitions:
                raise ConfigurationError(
                    f"{self.where}: the values of {name!r}, by which it is partitioned, are in the names of folders, "
                    "which are not read; leave the column out"
                )
            if name not in self.schema.names:
                hint = nearest(name, self.schema.names)
                known = ", ".join(self.schema.names)
                raise ConfigurationError(f"{self.where} has no column {name!r}{hint}; it has {known}")
        return pa.schema([self.schema.field(name) for name in names])
