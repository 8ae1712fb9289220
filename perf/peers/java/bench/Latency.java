package bench;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * How long a row is under way through a keyed shuffle and a running sum, as perf/latency.py has it: row i is due at start + i / rate
 * by its source's own start, whatever the job does, and its latency counts from then to where the sum's update arrives.
 */
final class Latency {
    private static final int BUCKET_NANOS = 10_000;
    private static final int BUCKETS = 1_000_000;
    private static final AtomicLongArray SEEN = new AtomicLongArray(BUCKETS);
    private static final AtomicLong START = new AtomicLong(Long.MAX_VALUE);

    private Latency() {}

    /** (key, when the row was due, total so far). */
    static DataStream<Tuple3<Long, Long, Double>> sums(Run run) {
        run.env().setBufferTimeout(run.job().number("buffer_timeout_ms"));
        return run.input(new PacedRows(run.job())).keyBy(row -> row.f0, Types.LONG).process(new TimedSum());
    }

    /** Takes the latency of each row that is due in the measured time. */
    static CheckedSink.Take<Tuple3<Long, Long, Double>> probe(Job job) {
        long from = job.number("warm_up_ms") * 1_000_000;
        long to = from + job.number("measured_ms") * 1_000_000;
        return row -> {
            long now = System.nanoTime();
            long since = row.f1 - START.get();
            if (since >= from && since < to) {
                SEEN.incrementAndGet((int) Math.min((now - row.f1) / BUCKET_NANOS, BUCKETS - 1));
            }
        };
    }

    /** "latency ROWS P50 P99 P99.9", in milliseconds, to a hundredth. */
    static String line() {
        long rows = 0;
        for (int i = 0; i < BUCKETS; i++) {
            rows += SEEN.get(i);
        }
        return "latency " + rows + " " + quantile(rows, 0.5) + " " + quantile(rows, 0.99) + " " + quantile(rows, 0.999);
    }

    private static double quantile(long rows, double share) {
        long before = 0;
        int bucket = 0;
        while (bucket < BUCKETS - 1 && (before += SEEN.get(bucket)) <= share * (rows - 1)) {
            bucket++;
        }
        return (bucket + 0.5) * BUCKET_NANOS / 1e6;
    }

    private static final class PacedRows implements Rows<Tuple3<Long, Long, Double>> {
        private final Pace pace;
        private final long keys;
        private final long keyStep;

        PacedRows(Job job) {
            pace = new Pace(job.number("rate"), job.number("step_ms"));
            keys = job.number("keys");
            keyStep = job.number("key_step");
        }

        @Override
        public void open() {}

        @Override
        public Tuple3<Long, Long, Double> row(long number) {
            return new Tuple3<>(number * keyStep % keys, pace.due(number), (double) (number % 1000));
        }

        @Override
        public TypeInformation<Tuple3<Long, Long, Double>> type() {
            return Types.TUPLE(Types.LONG, Types.LONG, Types.DOUBLE);
        }

        @Override
        public long dueBefore(long next) {
            long due = pace.dueBefore(next);
            START.accumulateAndGet(pace.due(0), Math::min);
            return due;
        }

        @Override
        public CompletableFuture<Void> whenDue(long number) {
            return pace.whenDue(number);
        }
    }

    private static final class TimedSum extends KeyedProcessFunction<Long, Tuple3<Long, Long, Double>, Tuple3<Long, Long, Double>> {
        private transient ValueState<Double> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.DOUBLE));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Double> row, Context context, Collector<Tuple3<Long, Long, Double>> out)
                throws Exception {
            Double before = total.value();
            Double after = before == null ? row.f2 : Double.valueOf(before + row.f2);
            total.update(after);
            out.collect(new Tuple3<>(row.f0, row.f1, after));
        }
    }
}
