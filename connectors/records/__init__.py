"""Formats of single records: how the bytes of a message become columns, and rows become bytes.

Sources and sinks of logs, sockets and HTTP call them. A format is described by a picklable object and imports its
library where it is used.
"""
