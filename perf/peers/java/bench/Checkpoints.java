package bench;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.api.java.tuple.Tuple4;
import org.apache.flink.api.java.tuple.Tuple5;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.CheckpointType;
import org.apache.flink.runtime.checkpoint.AbstractCheckpointStats;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * What checkpoints cost, as perf/checkpoint.py has it: in one job whose state is full, windows of time with a checkpoint and without
 * one follow each other. Prints "window RATE-WITH RATE-WITHOUT" and "checkpoint MS BYTES WRITTEN" for each pair.
 */
final class Checkpoints {
    private static final long A_DAY_MS = TimeUnit.DAYS.toMillis(1);

    private Checkpoints() {}

    /** (key, count, sum, lowest, highest) so far, one row for each row. */
    static DataStream<Tuple5<Long, Long, Double, Double, Double>> aggregates(Run run) {
        return run.input(new Events(run.job())).keyBy(row -> row.f0, Types.LONG).process(new Aggregates());
    }

    /** Runs the job that {@code run} has been given, and ends with this process. */
    static void measure(Run run) throws Exception {
        Job job = run.job();
        Counters given = new Counters(run.counters());
        run.env().enableCheckpointing(A_DAY_MS);
        JobGraph graph = run.env().getStreamGraph().getJobGraph();
        Configuration settings = new Configuration((Configuration) run.env().getConfiguration());
        settings.set(RestOptions.BIND_PORT, "0");
        MiniClusterConfiguration of = new MiniClusterConfiguration.Builder()
            .setConfiguration(settings)
            .setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(run.parallelism())
            .build();
        try (MiniCluster cluster = new MiniCluster(of)) {
            cluster.start();
            JobID id = cluster.submitJob(graph).get().getJobID();
            while (given.total() < job.number("full_rows")) {
                Thread.sleep(100);
            }
            Thread.sleep(job.number("warm_up_ms"));
            long windowNanos = job.number("window_ms") * 1_000_000;
            for (int n = 0; n < job.number("first_checkpoints"); n++) {
                cluster.triggerCheckpoint(id, CheckpointType.CONFIGURED).get();
                TimeUnit.NANOSECONDS.sleep(windowNanos);
            }
            long at = System.nanoTime();
            long rows = given.total();
            long due = at;
            for (int n = 0; n < job.number("cycles"); n++) {
                CompletableFuture<Long> checkpoint = cluster.triggerCheckpoint(id, CheckpointType.CONFIGURED);
                double[] rates = new double[2];
                for (int half = 0; half < 2; half++) {
                    due += windowNanos;
                    TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
                    long now = System.nanoTime();
                    long until = given.total();
                    rates[half] = (until - rows) * 1e9 / (now - at);
                    at = now;
                    rows = until;
                }
                checkpoint.get();
                System.out.println("window " + rates[0] + " " + rates[1]);
                AbstractCheckpointStats last = cluster.getExecutionGraph(id).get().getCheckpointStatsSnapshot().getHistory()
                    .getLatestCompletedCheckpoint();
                System.out.println("checkpoint " + last.getEndToEndDuration() + " " + last.getStateSize() + " "
                    + last.getCheckpointedSize());
            }
        }
    }

    private static final class Aggregates
            extends KeyedProcessFunction<Long, Tuple3<Long, Long, Double>, Tuple5<Long, Long, Double, Double, Double>> {
        private static final TypeInformation<Tuple4<Long, Double, Double, Double>> STATE =
            Types.TUPLE(Types.LONG, Types.DOUBLE, Types.DOUBLE, Types.DOUBLE);
        private transient ValueState<Tuple4<Long, Double, Double, Double>> state;

        @Override
        public void open(OpenContext context) {
            state = getRuntimeContext().getState(new ValueStateDescriptor<>("state", STATE));
        }

        @Override
        public void processElement(Tuple3<Long, Long, Double> row, Context context,
                Collector<Tuple5<Long, Long, Double, Double, Double>> out) throws Exception {
            Tuple4<Long, Double, Double, Double> of = state.value();
            if (of == null) {
                of = new Tuple4<>(1L, row.f2, row.f2, row.f2);
            } else {
                of.setFields(of.f0 + 1, of.f1 + row.f2, Math.min(of.f2, row.f2), Math.max(of.f3, row.f2));
            }
            state.update(of);
            out.collect(new Tuple5<>(row.f0, of.f0, of.f1, of.f2, of.f3));
        }
    }
}
