"""Keyed state on local disk by RocksDB."""
