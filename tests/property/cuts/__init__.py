"""Random streams of rows, watermarks and ticks of the clock, cut into batches in any way: the cut changes no result.

`drawing` has the operators that are drawn, `runs` how they are run, and what is compared:

- A run in which each row is a batch of its own, with runs of the same rows in larger batches, late rows included. Where
  batches are said to give fewer rows (updates of running aggregates, results of a window again for late rows), the last
  ones between two watermarks are compared.
- With runs that are restored in the middle, at another parallelism too, and with state in RocksDB.
- From the command line, with runs in which bounds are lowered beyond which many rows or keys go other ways (`sizes`).
- With another way to the same: windows row by row beside those on whole batches, compiled functions beside plain ones.
- With plain Python, where that is short (`models`).

`tests.parity` and `tests.property.programs` compare whole jobs, whose rows never come late.
"""
