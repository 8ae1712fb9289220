"""Files as a source and as a sink: Parquet, CSV and JSON lines, plain or compressed.

Programs use `FileSource.of(...)` from `source` and `FileSink(...)` from `sink`; the other modules are their
parts.
"""
