"""HTTP as a source. Programs use `HttpSource`; `client.py` serves other connectors too."""

from penstock.connectors.http.source import HttpSource

__all__ = ["HttpSource"]
