"""Random programs of the public API, compared with plain Python wherever programs run: `programs` has what they are of.

Every verb and kind of windows is in them, columns of most types, patterns, and queries of SQL whose rows stay or
change; but not these, which are compared with what they must give elsewhere:

- `iterate`, which batch mode refuses: tests/engine/api/test_iterations.py, tests/actors/test_iterations.py.
- What goes by the clock, in one mode alone: windows and timers of processing time, ingestion time
  (tests/engine/operators/windows/test_window_firing.py, tests/engine/operators/functions/test_keyed_process.py,
  tests/engine/windows/test_event_time_jobs.py), time to live (tests/engine/state/test_ttl.py), retries and time-outs of
  `map_async` (tests/engine/operators/test_async_function.py).
- What goes by the order in which rows come, which differs by mode: triggers that fire before the end of a window, late
  rows, evictors by number and difference (test_window_firing.py, test_window_lateness.py, test_session_lateness.py and
  test_window_custom.py in tests/engine/operators/windows, tests/engine/windows/test_triggers.py and test_evictors.py),
  which rows are in a count window (only how many are compared here).
  Late rows and what goes by the order of arrival in one subtask, with all triggers and evictors: tests/property/cuts.
- State of subtasks: tests/engine/state/test_operator_state.py, tests/engine/operators/functions/test_process.py.
- Of patterns, strategies that skip matches, and time-outs: tests/engine/operators/matching. Of SQL, statements other
  than queries, and joins with versions: tests/tables.
- Compiled functions, which run as plain Python in batches as small as these: tests/engine/compiled.
- Expressions one by one: tests/engine/test_expressions.py, tests/actors/spark/test_native.py. Types to sort by:
  tests/engine/test_ordering.py, tests/actors/spark/test_sorting.py.
- Sources and sinks other than collections, Parquet, `collect` and files: tests/connectors,
  tests/actors/spark/test_servers.py and test_terminals.py. `print`: tests/test_environment.py.
"""
