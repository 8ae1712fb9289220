"""The metrics that functions, sources and sinks keep beside the engine's own: counters, gauges, meters, histograms.

A function makes them in `open` with `context.metrics.counter("rejected")` and updates them as it likes; whoever watches
the job reads them from another thread. An update is a plain addition: no lock, no clock, no call to anybody.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from penstock.engine.errors import ConfigurationError
from penstock.engine.interruption import pass_interruption

MOST_METRICS: Final = 256
"""Of one operator: a metric for each user or key would fill whatever gathers them."""
PENDING_RECORDS: Final = ("pending_records", "pendingRecords")
"""What sources call the gauge of the records that they have not read yet."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_PER_DOUBLING: Final = 8
_LOWEST: Final = -20 * _PER_DOUBLING
_BUCKETS: Final = 84 * _PER_DOUBLING
"""From a millionth to 1.8e19, eight buckets a doubling: a quantile is off by 4.5 % at the most."""


class MetricKind(enum.Enum):
    """What a metric's figure means."""

    COUNTER = "counter"
    GAUGE = "gauge"
    METER = "meter"
    HISTOGRAM = "histogram"


class Counter:
    """A number that is counted up and down.

    Example:
        >>> rejected = Counter()
        >>> rejected.inc(3)
        >>> rejected.value
        3
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def inc(self, count: int = 1) -> None:
        """Count up."""
        self.value += count

    def dec(self, count: int = 1) -> None:
        """Count down."""
        self.value -= count


def plain_name(name: str) -> str:
    """A name in the characters that names of metrics have, as an operator's is not.

    Example:
        >>> plain_name("2 events -> sum")
        '_2_events____sum'
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:99]
    return plain if _NAME.fullmatch(plain) else f"_{plain}"


class Meter:
    """Events of which the rate matters: what watches the job shows how many came a second over the last minute."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def mark(self, count: int = 1) -> None:
        """Note that `count` events have happened."""
        self.count += count


class Gauge:
    """A figure as of now: the last one that was set, or what `read` gives at each reading.

    Args:
        read: called from another thread than the function's, so it may look at things and change none. Where it raises,
            there is no figure (NaN).
    """

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._read = read
        self._value = math.nan

    def set(self, value: float) -> None:
        """Make `value` the figure."""
        self._value = float(value)

    @property
    def value(self) -> float:
        """The figure; NaN where there is none."""
        if self._read is None:
            return self._value
        try:
            return float(self._read())
        except BaseException as error:
            pass_interruption(error)
            # A figure is not worth a job.
            return math.nan

    def __reduce__(self) -> tuple[Callable[[float], Gauge], tuple[float]]:
        return _gauge_of, (self.value,)


def _gauge_of(value: float) -> Gauge:
    gauge = Gauge()
    gauge.set(value)
    return gauge


class Histogram:
    """How values are spread: counted in buckets that grow by a twelfth each, so that histograms can be added up.

    Source of the form: Masson, Rim, Lee: "DDSketch" (VLDB 2019), with fixed bounds.

    Example:
        >>> sizes = Histogram()
        >>> sizes.update_many([1.0, 2.0, 1000.0])
        >>> sizes.count, round(sizes.quantile(0.5), 1)
        (3, 2.0)
    """

    __slots__ = ("_counts", "count", "highest", "lowest", "total")

    def __init__(self) -> None:
        self._counts: npt.NDArray[np.int64] = np.zeros(_BUCKETS, np.int64)
        self.count = 0
        self.total = 0.0
        self.lowest = math.inf
        self.highest = -math.inf

    def update(self, value: float) -> None:
        """Count one value; what is not above zero goes to the lowest bucket, NaN nowhere."""
        if math.isnan(value):
            return
        self._counts[_bucket(value)] += 1
        self.count += 1
        self.total += value
        self.lowest = min(self.lowest, value)
        self.highest = max(self.highest, value)

    def update_many(self, values: Iterable[float] | npt.NDArray[Any]) -> None:
        """Count the values of an array; far cheaper than one by one."""
        array = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
        array = array[~np.isnan(array)]
        if not len(array):
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            exponents = np.floor(np.log2(np.maximum(array, 0.0)) * _PER_DOUBLING)
        places = np.clip(exponents - _LOWEST, 0, _BUCKETS - 1).astype(np.int64)
        self._counts += np.bincount(places, minlength=_BUCKETS)
        self.count += len(array)
        self.total += float(array.sum())
        self.lowest = min(self.lowest, float(array.min()))
        self.highest = max(self.highest, float(array.max()))

    def quantile(self, share: float) -> float:
        """The value that `share` (0 to 1) of all values do not exceed, to 4.5 %; NaN where there is none."""
        if not self.count:
            return math.nan
        wanted = min(max(1, math.ceil(share * self.count)), self.count)
        place = int(np.searchsorted(np.cumsum(self._counts), wanted))
        middle: float = 2.0 ** ((place + _LOWEST + 0.5) / _PER_DOUBLING)
        return min(max(middle, self.lowest), self.highest)

    def add(self, other: Histogram) -> None:
        """Take in what another one has counted."""
        self._counts += other._counts
        self.count += other.count
        self.total += other.total
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)


def _bucket(value: float) -> int:
    if value <= 0:
        return 0
    exponent = math.floor(math.log2(value) * _PER_DOUBLING) if value < math.inf else _BUCKETS
    return min(max(exponent - _LOWEST, 0), _BUCKETS - 1)


Metric: TypeAlias = Counter | Gauge | Meter | Histogram
_AnyMetric = TypeVar("_AnyMetric", Counter, Gauge, Meter, Histogram)


class MetricGroup:
    """The metrics of one operator in one subtask, by name: what `context.metrics` is.

    Example:
        >>> metrics = MetricGroup()
        >>> metrics.counter("rejected").inc()
        >>> metrics.counter("rejected").value
        1
    """

    __slots__ = ("_metrics",)

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}

    def counter(self, name: str) -> Counter:
        """The counter of that name, made if there is none.

        Args:
            name: letters, digits and underscores.

        Raises:
            ConfigurationError: no such name, a metric of another kind has it, or there are too many.
        """
        return self._get(name, Counter, Counter)

    def meter(self, name: str) -> Meter:
        """The meter of that name; errors as for `counter`."""
        return self._get(name, Meter, Meter)

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name; errors as for `counter`."""
        return self._get(name, Histogram, Histogram)

    def gauge(self, name: str, read: Callable[[], float] | None = None) -> Gauge:
        """The gauge of that name; errors as for `counter`.

        Args:
            name: as for `counter`.
            read: as for `Gauge`; where it is given, it replaces what the gauge of that name had.
        """
        if read is not None and isinstance(self._metrics.get(name), Gauge):
            del self._metrics[name]
        return self._get(name, Gauge, lambda: Gauge(read))

    def _get(self, name: str, kind: type[_AnyMetric], make: Callable[[], _AnyMetric]) -> _AnyMetric:
        found = self._metrics.get(name)
        if isinstance(found, kind):
            return found
        if found is not None:
            raise ConfigurationError(
                f"metric {name!r} is a {type(found).__name__}; give the {kind.__name__} another name"
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigurationError(
                f"a metric's name has letters, digits and underscores, 100 at the most, not {name!r:.200}"
            )
        if len(self._metrics) >= MOST_METRICS:
            raise ConfigurationError(
                f"metric {name!r} would be one more than the {MOST_METRICS} that an operator may have; names must not "
                "come from the data"
            )
        made = make()
        self._metrics[name] = made
        return made

    def all(self) -> Mapping[str, Metric]:
        """The metrics so far, by name."""
        # In one step of the interpreter: the function's thread may add one meanwhile.
        return dict(self._metrics)

    def __getstate__(self) -> Mapping[str, Metric]:
        return self.all()

    def __setstate__(self, state: Mapping[str, Metric]) -> None:
        self._metrics = dict(state)


@dataclass(frozen=True, slots=True)
class MetricReading:
    """One metric, its subtasks added up.

    Args:
        name, kind: which.
        value: a counter's or meter's sum, a gauge's mean, a histogram's number of values.
        lowest, highest: of gauges over the subtasks, of histograms over the values; else as `value`.
        quantiles: of a histogram, by share: 0.5, 0.95, 0.99.
        total: the sum of a histogram's values.
    """

    name: str
    kind: MetricKind
    value: float
    lowest: float
    highest: float
    quantiles: tuple[tuple[float, float], ...] = ()
    total: float = 0.0


SHARES: Final = (0.5, 0.95, 0.99)
"""The quantiles that a reading has."""


def read_together(groups: Iterable[MetricGroup]) -> tuple[MetricReading, ...]:
    """The metrics of several subtasks of one operator, added up, by name."""
    by_name: dict[str, list[Metric]] = {}
    for group in groups:
        for name, metric in group.all().items():
            by_name.setdefault(name, []).append(metric)
    return tuple(_reading(name, by_name[name]) for name in sorted(by_name))


def pending_records(groups: Iterable[MetricGroup]) -> float | None:
    """The records that the subtasks of a source have not read yet, as far as they say; None where none does."""
    gauges = [group.all().get(name) for group in groups for name in PENDING_RECORDS]
    known = [gauge.value for gauge in gauges if isinstance(gauge, Gauge) and not math.isnan(gauge.value)]
    return sum(known) if known else None


def _reading(name: str, metrics: list[Metric]) -> MetricReading:
    match metrics[0]:
        case Histogram():
            whole = Histogram()
            for metric in metrics:
                if isinstance(metric, Histogram):
                    whole.add(metric)
            quantiles = tuple((share, whole.quantile(share)) for share in SHARES) if whole.count else ()
            return MetricReading(
                name, MetricKind.HISTOGRAM, whole.count, whole.lowest, whole.highest, quantiles, whole.total
            )
        case Gauge():
            values = [metric.value for metric in metrics if isinstance(metric, Gauge)]
            known = [value for value in values if not math.isnan(value)] or [math.nan]
            return MetricReading(name, MetricKind.GAUGE, sum(known) / len(known), min(known), max(known))
        case Counter():
            count = sum(metric.value for metric in metrics if isinstance(metric, Counter))
            return MetricReading(name, MetricKind.COUNTER, count, count, count)
        case Meter():
            count = sum(metric.count for metric in metrics if isinstance(metric, Meter))
            return MetricReading(name, MetricKind.METER, count, count, count)
