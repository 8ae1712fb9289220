"""Tests of batch mode on Spark."""
