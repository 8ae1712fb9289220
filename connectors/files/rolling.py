"""When the file sink ends a file and begins another before the checkpoint does.

Programs pass `roll=Rolling(...)` to `FileSink`, whose writers ask `is_due` behind each batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError

_SMALLEST_BYTES: Final = 1


@dataclass(frozen=True, slots=True)
class Rolling:
    """Ends a file when it is large or old enough; each checkpoint ends all files besides.

    No file spans a checkpoint: what is committed is a whole file, which readers see at once and which
    never changes. So these limits make more files, never fewer: for larger files choose a longer checkpoint interval.

    Args:
        max_bytes: a file ends behind the batch that makes it at least this large, in bytes as they are on the disk.
            For compressed and Parquet files about: rows that are still in memory count as they are there.
        max_age: a file ends behind the first batch that comes this long after its own first; by processing time.

    Raises:
        ConfigurationError: a limit is not positive.

    Example:
        >>> Rolling(max_bytes=128 * 1024 * 1024, max_age="15m")
    """

    max_bytes: int | None = None
    max_age: Duration | None = None

    def __post_init__(self) -> None:
        size = self.max_bytes
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < _SMALLEST_BYTES):
            raise ConfigurationError(f"Rolling: max_bytes must be a number of bytes of at least 1, not {size!r}")
        if self.max_age is not None and parse_duration(self.max_age, "Rolling: max_age") < 1:
            raise ConfigurationError("Rolling: max_age must be at least a millisecond")

    def is_due(self, size: int, age_s: float) -> bool:
        """Whether a file of `size` bytes that was begun `age_s` seconds ago ends now."""
        if self.max_bytes is not None and size >= self.max_bytes:
            return True
        return self.max_age is not None and age_s * 1000 >= parse_duration(self.max_age, "Rolling: max_age")
