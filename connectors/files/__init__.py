"""Files as a source and as a sink, on disks and in buckets: Parquet, CSV, JSON lines and Avro, plain or compressed.

Programs use `FileSource.of(...)` from `source` and `FileSink(...)` from `sink`; the other modules are their
parts.
"""
