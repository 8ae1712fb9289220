"""Elasticsearch, and OpenSearch, as a sink over HTTP. Programs use `ElasticsearchSink`."""

from penstock.connectors.elasticsearch.sink import ElasticsearchSink

__all__ = ["ElasticsearchSink"]
