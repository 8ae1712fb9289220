"""Random patterns answered by Flink itself: `python -m tests.flink`, by hand, where Flink is installed."""
