"""Tests of the changelog operators."""
