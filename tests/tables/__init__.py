"""Tests of SQL and the Table API."""
