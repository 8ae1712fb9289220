"""Random programs give in one process what plain Python gives: streaming, in batch mode, and from one to the other.

On Ray and on Spark: tests/actors/spark/test_parity.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.programs import random_program
from tests.parity.runs import Mode, mismatches

WORDS = (
    "Parquet; in memory; filter; with_columns; flat_map; map_batches; map_async; map_async unordered; lookup_join;"
    "lookup_join inner; rebalance; rescale; broadcast to; forward; new chain; no chaining; side output; union;"
    "connect, map; connect, flat_map; connect, process; broadcast without keys; tumbling; sliding; session; cumulative;"
    "dynamic; own 7; patient; purging; by (); function over; function over the last; own aggregate; own reduce;"
    "process_batch; kept by; rank; odd buckets; connect by; connect with a broadcast; window_join full; interval_join;"
    "temporal_join left; co_group; group_by; place in sort; end: collect; end: files; running; reduce by;"
    "global window; count window; end: group_by; end: sort, group_by; end: sort by; , filter, collect; , map, files;"
    "even ones to a side; late rows to a side; own named; match within; notNext; notFollowedBy; sql: ; UNNEST;"
    "sql TUMBLE; sql HOP; sql CUMULATE; sql SESSION; sql over; sql: WITH; sql LEFT JOIN; sql FULL JOIN; MATCH_RECOGNIZE"
)

LONG = pytest.mark.long("other random programs")


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=LONG) for first in range(10, 40, 10))])
@pytest.mark.parametrize("mode", ["local", "parcels", "handed over"])
def test_random_programs_give_what_plain_python_gives(first: int, mode: Mode, tmp_path: Path) -> None:
    found = [one for seed in range(first, first + 10) for one in mismatches([seed], mode, tmp_path / str(seed))]
    assert not found, "\n\n".join(map(str, found))


def test_a_seed_makes_the_same_program_every_time() -> None:
    assert str(random_program(4711)) == str(random_program(4711))
    assert random_program(4711).expected == random_program(4711).expected


def test_programs_have_every_verb_and_end_and_most_give_rows() -> None:
    programs = [random_program(seed) for seed in range(155, 405)]
    text = "\n".join(map(str, programs))
    for word in WORDS.split(";"):
        assert word.strip() in text, word
    ends = [rows for program in programs for rows in program.expected]
    assert sum(map(bool, ends)) > len(ends) / 2
