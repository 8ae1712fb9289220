package bench;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;

/**
 * (key, timestamp, value), the same rows as those of perf/generators.py, perf/window.py and perf/wide.py.
 *
 * <p>Keys and values repeat prepared columns; without a column of keys, they follow the golden ratio, and
 * with {@code hot_keys}, only so many of them have rows within {@code hot_ms}, once each key has come. With
 * {@code rows_per_second}, a timestamp is the row's share of a second of event time, less its prepared delay; else it is the
 * row's number.
 */
public final class Events implements Rows<Tuple3<Long, Long, Double>> {
    private static final long GOLDEN = 0x9E3779B97F4A7C15L;
    private static final int HOT_STEPS = 16;
    private final Job job;
    private final Pace pace;
    private transient Long[] keys;
    private transient Double[] values;
    private transient long[] delays;
    private transient long spreadKeys;
    private transient long hotKeys;
    private transient long hotMs;
    private transient long fullRows;
    private transient long rowsPerSecond;
    private transient long startMs;
    private transient long cohorts;
    private transient long cohortRows;
    private transient long cohortKeys;

    public Events(Job job) {
        this.job = job;
        this.pace = job.has("rate") ? new Pace(job.number("rate"), job.number("step_ms")) : null;
    }

    @Override
    public void open() {
        if (job.hasColumn("key")) {
            long[] given = job.longs("key");
            keys = new Long[given.length];
            for (int i = 0; i < given.length; i++) {
                keys[i] = given[i];
            }
        } else {
            spreadKeys = job.number("spread_keys");
            hotKeys = job.has("hot_keys") ? job.number("hot_keys") : 0;
            if (hotKeys > 0) {
                hotMs = job.number("hot_ms");
                fullRows = job.number("full_rows");
            }
        }
        double[] given = job.doubles("v");
        values = new Double[given.length];
        for (int i = 0; i < given.length; i++) {
            values[i] = given[i];
        }
        if (job.has("rows_per_second")) {
            rowsPerSecond = job.number("rows_per_second");
            startMs = job.number("start_ms");
            delays = job.longs("delay");
        }
        cohorts = job.has("cohorts") ? job.number("cohorts") : 1;
        if (cohorts > 1) {
            cohortRows = rowsPerSecond * job.number("cohort_seconds");
            cohortKeys = job.number("cohort_keys");
        }
    }

    @Override
    public Tuple3<Long, Long, Double> row(long number) {
        return new Tuple3<>(key(number), timestamp(number), values[(int) (number % values.length)]);
    }

    /** Watermarks behind the largest timestamp, by as much as the job says. */
    public WatermarkStrategy<Tuple3<Long, Long, Double>> watermarks() {
        Duration behind = Duration.ofMillis(job.number("watermark_ms"));
        return WatermarkStrategy.<Tuple3<Long, Long, Double>>forBoundedOutOfOrderness(behind)
            .withTimestampAssigner((event, before) -> event.f1);
    }

    private Long key(long number) {
        if (keys == null) {
            if (hotKeys == 0 || number < fullRows) {
                return spread(number, spreadKeys);
            }
            long first = (long) (System.nanoTime() / 1e6 / hotMs * hotKeys);
            return (spread(number, Math.max(1, hotKeys / HOT_STEPS)) + first) % spreadKeys;
        }
        Long key = keys[(int) (number % keys.length)];
        return cohorts == 1 ? key : Long.valueOf(key + number / cohortRows % cohorts * cohortKeys);
    }

    private static long spread(long number, long keys) {
        return ((number * GOLDEN) >>> 32) * keys >>> 32;
    }

    private long timestamp(long number) {
        if (delays == null) {
            return number;
        }
        return startMs + number * 1000 / rowsPerSecond - delays[(int) (number % delays.length)];
    }

    @Override
    public long dueBefore(long next) {
        return pace == null ? Long.MAX_VALUE : pace.dueBefore(next);
    }

    @Override
    public CompletableFuture<Void> whenDue(long number) {
        return pace == null ? AT_ONCE : pace.whenDue(number);
    }

    @Override
    public TypeInformation<Tuple3<Long, Long, Double>> type() {
        return Types.TUPLE(Types.LONG, Types.LONG, Types.DOUBLE);
    }
}
