"""Tests of the connectors that CREATE TABLE names."""
