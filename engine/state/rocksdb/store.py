"""One RocksDB database in a folder of its own: bytes to bytes, in order; used by `backend.py` alone.

The folder is scratch space: nothing in it outlives the backend, because what must survive a failure is in checkpoints,
which link to its files. So there is no write-ahead log, and `close` removes it. Memory is bounded by the constants
below, however much is stored.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.engine.errors import ConfigurationError, StateError
from penstock.engine.state.rocksdb.folders import OwnedFolder

if TYPE_CHECKING:
    from rocksdict import Options, ReadOptions

_CACHE_BYTES: Final = 32 * 1024 * 1024
"""For blocks that were read, with their indexes and bloom filters."""
_WRITE_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""What is written to the disk while a barrier waits, so a small one; as many more may be on their way there."""
_WRITE_BUFFERS: Final = 4
_OPEN_FILES: Final = 256
_BITS_PER_KEY: Final = 10
_BATCH_ENTRIES: Final = 4096


class RocksDbStore:
    """A sorted map of bytes on disk.

    Args:
        directory: where to make the folder; None means the system's temporary folder.
        where: operator and subtask, for messages.

    Raises:
        ConfigurationError: `rocksdict` is not installed, or the directory cannot be written to.

    Example:
        `store = RocksDbStore(None, "operator 'count', subtask 0"); store.put(b"k", b"v"); store.close()`
    """

    def __init__(self, directory: str | None, where: str) -> None:
        try:
            import rocksdict
        except ImportError as error:
            raise ConfigurationError(
                f"{where}: state_backend='rocksdb' needs the package rocksdict, which is not installed; run "
                "pip install 'penstock[rocksdb]' on every node, or use state_backend='heap'"
            ) from error
        try:
            self._owned: Final = OwnedFolder(directory)
        except OSError as error:
            raise ConfigurationError(
                f"{where}: no folder for state can be made in {directory or tempfile.gettempdir()}: {error}; set "
                "state_directory to a folder that every node can write to"
            ) from error
        self.folder: Final = str(self._owned.path)
        self.directory: Final = directory
        self.id: Final = uuid.uuid4().hex
        """No other database ever has it."""
        self._rocksdict = rocksdict
        self._where = where
        self._database = rocksdict.Rdict(self.folder, _options())
        write_options = rocksdict.WriteOptions()
        write_options.disable_wal = True  # type: ignore[method-assign, assignment] # its stubs call it a method
        self._database.set_write_options(write_options)
        # Bound here, because these are called for every record.
        self.put: Final = self._database.put
        self.delete: Final = self._database.delete
        self.get: Final = self._database.get

    def get_all(self, keys: list[bytes]) -> list[bytes | None]:
        """The values under many keys, None where there is none."""
        found: Any = self._database.get([*keys])
        return cast("list[bytes | None]", found)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with `prefix`, in order, as they are now.

        Args:
            prefix: of the keys, not empty.
            start: skip the keys below this one.
        """
        return _scanned(self._database, start or prefix, _successor(prefix))

    def put_all(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Write many entries."""
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for key, value in entries:
            batch.put(key, value)
            batch = self._written_if_full(batch)
        self._database.write(batch)

    def delete_all(self, keys: Iterable[bytes]) -> None:
        """Delete many entries.

        One by one: a range of keys can be deleted at once, but many such ranges slow down every read.
        """
        batch = self._rocksdict.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
            batch = self._written_if_full(batch)
        self._database.write(batch)

    def _written_if_full(self, batch: Any) -> Any:
        if batch.len() < _BATCH_ENTRIES and batch.size_in_bytes() < _WRITE_BUFFER_BYTES:
            return batch
        self._database.write(batch)
        return self._rocksdict.WriteBatch(raw_mode=True)

    def link(self, folder: Path) -> None:
        """Make a folder of hard links to the files that hold all entries; what is written later does not show there.

        First writes to the disk what is in memory yet: at most the write buffers' bytes, however much is stored.

        Args:
            folder: is not there yet, and on the same file system.

        Raises:
            StateError: the disk is full, for example.
        """
        try:
            self._rocksdict.Checkpoint(self._database).create_checkpoint(str(folder))
        except Exception as error:
            raise StateError(
                f"{self._where}: RocksDB cannot write its state to {folder}: {error}; make room there, or set "
                "state_directory to a larger disk"
            ) from error

    def close(self) -> None:
        """Close the database and remove its folder."""
        if self._owned.held:
            self._database.close()
            self._owned.remove()


class RocksDbReader:
    """Reads the files of a database that nobody writes.

    Args:
        folder: from `RocksDbStore.link`.

    Raises:
        ConfigurationError: `rocksdict` is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from rocksdict import AccessType, Rdict
        except ImportError as error:
            raise ConfigurationError(
                "this state was kept by RocksDB, and the package rocksdict, which reads it, is not installed; run "
                "pip install 'penstock[rocksdb]' on every node"
            ) from error
        self._database = Rdict(str(folder), _options(), access_type=AccessType.read_only(False))

    def scan(self, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries with begin <= key < end, in order."""
        return _scanned(self._database, begin, end)

    def close(self) -> None:
        """Close the files."""
        self._database.close()


def _scanned(database: Any, begin: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return _held(database.items(from_key=begin, read_opt=options), options)


def _held(entries: Iterator[tuple[bytes, bytes]], options: ReadOptions) -> Iterator[tuple[bytes, bytes]]:
    """The entries; holds the options meanwhile, because the iterator reads the bound from their memory."""
    yield from entries


def _successor(prefix: bytes) -> bytes:
    """The least bytes above all that begin with `prefix`, which begins with a state's id and so is not all 0xFF."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _options() -> Options:
    from rocksdict import (
        BlockBasedIndexType,
        BlockBasedOptions,
        Cache,
        DataBlockIndexType,
        DBCompressionType,
        Options,
    )

    table = BlockBasedOptions()
    table.set_block_cache(Cache(_CACHE_BYTES))
    # Indexes and filters are in the cache too, or memory would grow with the state; and in small parts, because
    # those of a whole file are larger than a shard of the cache, and would be read anew by every get.
    table.set_cache_index_and_filter_blocks(True)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_pin_top_level_index_and_filter(True)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_bloom_filter(_BITS_PER_KEY, False)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_max_write_buffer_number(_WRITE_BUFFERS)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_max_open_files(_OPEN_FILES)
    options.set_max_background_jobs(2)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_keep_log_file_num(1)
    options.set_max_log_file_size(1024 * 1024)
    options.set_stats_dump_period_sec(0)
    return options
