package bench;

import java.util.regex.Pattern;
import java.util.zip.CRC32;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFilterFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowAssigner;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The benchmarks as DataStream programs, one method each; the Python programs of the same names say what they measure. */
final class Programs {
    /** In what a program is written. */
    interface Api {
        void execute(Run run) throws Exception;
    }

    private final Run run;
    private final Job job;

    private Programs(Run run) {
        this.run = run;
        this.job = run.job();
    }

    /** Runs the program that the job names to the end of its input. */
    static void execute(Run run) throws Exception {
        Programs programs = new Programs(run);
        String name = run.job().text("program");
        switch (name) {
            case "lines" -> run.input(new Lines(run.job())).sinkTo(new DiscardingSink<>());
            case "events" -> run.input(new Events(run.job())).sinkTo(new DiscardingSink<>());
            case "grep" -> programs.grep();
            case "keyed", "keyed_coalesced" -> sums(run, run.input(new Events(run.job())));
            case "count" -> programs.output(counts(run), row -> Digest.add(row.f0, row.f1));
            case "window" -> programs.window();
            case "ad_events" -> run.input(new AdEvents(run.job())).sinkTo(new DiscardingSink<>());
            case "latency" -> programs.latency();
            case "checkpoint" -> programs.output(Checkpoints.aggregates(run),
                row -> Digest.addLargest(row.f0, row.f1, row.f2.longValue()));
            case "patterns" -> programs.output(Patterns.matches(run), Digest::add);
            case "ysb" -> programs.output(AdViews.of(run), Digest::add);
            default -> throw new IllegalArgumentException("no DataStream program is called " + name);
        }
        if (name.equals("checkpoint") && !run.check()) {
            Checkpoints.measure(run);
        } else {
            run.env().execute(name);
        }
    }

    private <T> void output(DataStream<T> rows, CheckedSink.Take<T> take) {
        if (run.check()) {
            rows.sinkTo(new CheckedSink<>(take));
        } else {
            rows.sinkTo(new DiscardingSink<>());
        }
    }

    private void grep() {
        output(run.input(new Lines(job)).filter(new Matches(job.text("pattern"))), line -> {
            CRC32 crc = new CRC32();
            crc.update(line.getBytes(StandardCharsets.US_ASCII));
            Digest.add(crc.getValue());
        });
    }

    /** A running sum per key, one row for each row; where one for many would do, this is at least as much. */
    static void sums(Run run, DataStream<Tuple3<Long, Long, Double>> rows) {
        new Programs(run).output(byKey(rows).process(new RunningSum()),
            update -> Digest.addLargest(update.f0, update.f1.longValue()));
    }

    /** A running count per key, one row for each row. */
    static DataStream<Tuple2<Long, Long>> counts(Run run) {
        return byKey(run.input(new Events(run.job()))).process(new RunningCount());
    }

    private void latency() {
        CheckedSink.Take<Tuple3<Long, Long, Double>> probe = Latency.probe(job);
        Latency.sums(run).sinkTo(new CheckedSink<>(run.check() ? row -> Digest.addLargest(row.f0, row.f2.longValue()) : probe));
    }

    private void window() {
        Events events = new Events(job);
        output(byKey(run.input(events, events.watermarks())).window(windows()).aggregate(new Statistics(), new WindowRow()),
            Digest::add);
    }

    private WindowAssigner<Object, TimeWindow> windows() {
        if (job.has("gap_ms")) {
            return EventTimeSessionWindows.withGap(Duration.ofMillis(job.number("gap_ms")));
        }
        Duration size = Duration.ofMillis(job.number("size_ms"));
        if (job.number("slide_ms") == job.number("size_ms")) {
            return TumblingEventTimeWindows.of(size);
        }
        return SlidingEventTimeWindows.of(size, Duration.ofMillis(job.number("slide_ms")));
    }

    private static KeyedStream<Tuple3<Long, Long, Double>, Long> byKey(DataStream<Tuple3<Long, Long, Double>> events) {
        return events.keyBy(new Key(), Types.LONG);
    }

    private static final class Key implements KeySelector<Tuple3<Long, Long, Double>, Long> {
        @Override
        public Long getKey(Tuple3<Long, Long, Double> event) {
            return event.f0;
        }
    }

    private static final class Matches extends RichFilterFunction<String> {
        private final String regex;
        private transient Pattern pattern;

        Matches(String regex) {
            this.regex = regex;
        }

        @Override
        public void open(OpenContext context) {
            pattern = Pattern.compile(regex);
        }

        @Override
        public boolean filter(String line) {
            return pattern.matcher(line).find();
        }
    }

    private static final class RunningSum extends KeyedProcessFunction<Long, Tuple3<Long, Long, Double>, Tuple2<Long, Double>> {
        private transient ValueState<Double> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.DOUBLE));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Double> event, Context context, Collector<Tuple2<Long, Double>> out)
                throws Exception {
            Double before = total.value();
            Double after = before == null ? event.f2 : Double.valueOf(before + event.f2);
            total.update(after);
            out.collect(new Tuple2<>(event.f0, after));
        }
    }

    private static final class RunningCount extends KeyedProcessFunction<Long, Tuple3<Long, Long, Double>, Tuple2<Long, Long>> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Double> event, Context context, Collector<Tuple2<Long, Long>> out)
                throws Exception {
            Long before = count.value();
            Long after = before == null ? 1L : before + 1;
            count.update(after);
            out.collect(new Tuple2<>(event.f0, after));
        }
    }

    /** Count, sum, lowest and highest. */
    private static final class Statistics implements AggregateFunction<Tuple3<Long, Long, Double>, double[], double[]> {
        @Override
        public double[] createAccumulator() {
            return new double[] {0, 0, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY};
        }

        @Override
        public double[] add(Tuple3<Long, Long, Double> event, double[] to) {
            double value = event.f2;
            to[0]++;
            to[1] += value;
            to[2] = Math.min(to[2], value);
            to[3] = Math.max(to[3], value);
            return to;
        }

        @Override
        public double[] getResult(double[] accumulator) {
            return accumulator;
        }

        @Override
        public double[] merge(double[] a, double[] b) {
            a[0] += b[0];
            a[1] += b[1];
            a[2] = Math.min(a[2], b[2]);
            a[3] = Math.max(a[3], b[3]);
            return a;
        }
    }

    /** Key, start, end, count, sum, lowest and highest; whole numbers all, as the values are. */
    private static final class WindowRow extends ProcessWindowFunction<double[], long[], Long, TimeWindow> {
        @Override
        public void process(Long key, Context context, Iterable<double[]> results, Collector<long[]> out) {
            double[] of = results.iterator().next();
            TimeWindow window = context.window();
            out.collect(new long[] {
                key, window.getStart(), window.getEnd(), (long) of[0], (long) of[1], (long) of[2], (long) of[3]
            });
        }
    }
}
