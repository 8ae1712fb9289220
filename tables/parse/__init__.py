"""From text to syntax trees: Flink's dialect of SQL, with the place of every node in the text."""
