"""Operators whose input and output are changelogs: rows that are inserted, updated and deleted.

SQL is lowered onto them; they know none. See `docs/adr` on changelogs for the model.
"""
