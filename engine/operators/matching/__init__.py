"""The operator that finds patterns in keyed streams, and what it keeps."""
