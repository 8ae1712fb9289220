"""Python functions of a row, compiled: checked, translated and run over whole columns."""
