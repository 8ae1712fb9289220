"""The keys of map state in dicts: as they are put, sought and shown, so that equal keys are equal on every backend.

Map states on the heap make one each. Of times with a zone Python compares the time of day, which comes twice in the
night when summer time ends, so dicts hold them in UTC.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.engine.state.state_tables import ValueCodec, instant
from penstock.engine.state.values import zone_of


class MapKeys:
    """Keys of one map state.

    Args:
        codec: of the keys.
    """

    def __init__(self, codec: ValueCodec) -> None:
        self._codec = codec
        kind = codec.kind
        self.zone = zone_of(kind.tz) if pa.types.is_timestamp(kind) and kind.tz is not None else None
        """The zone in which keys are shown; None where they are shown as they are held."""

    def admit(self, key: Any) -> Any:
        """The key under which a value is put.

        Raises:
            RecordError: None, or a key that does not fit the declared type.
        """
        return self.held(self._codec.admit(key))

    def sought(self, key: Any) -> Any:
        """The key under which a value would be, or None where nothing can be."""
        return self.held(self._codec.sought(key))

    def held(self, key: Any) -> Any:
        """A key of a snapshot as the dict holds it."""
        return key if self.zone is None else instant(key)

    def shown(self, key: Any) -> Any:
        """A key of the dict as users see it."""
        return key if self.zone is None else key.astimezone(self.zone)
