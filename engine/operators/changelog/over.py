"""OVER windows: to each row the aggregates of the rows before it in its partition, by event time.

Rows wait until the watermark has passed them, and then come out in the order of their timestamps (of equal ones, of
arrival), with their results behind them. Late rows are counted and dropped. A frame that goes back without bound keeps
one row of running values a partition; another keeps the rows that later frames may still need.

Source: Flink's documentation, "Over Aggregation", and its `RowTimeRangeBoundedPrecedingFunction` and siblings.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.frames import OverCall, Ordered, frame_results
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.ranks import within_runs
from penstock.engine.operators.changelog.row_states import NUMBER, RowState, RowStates
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot
