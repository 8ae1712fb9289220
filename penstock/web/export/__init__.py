"""Sends what the server has observed elsewhere: OpenTelemetry and OpenLineage.

The collector offers each reading to `exporter.py`; `otlp.py`, `spans.py` and `lineage.py` make the documents.
"""
