package bench;

import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.config.AggregatePhaseStrategy;
import org.apache.flink.table.api.config.ExecutionConfigOptions;
import org.apache.flink.table.api.config.OptimizerConfigOptions;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;
import org.apache.flink.api.java.tuple.Tuple3;

/** The running sum in SQL with mini-batches and two phases: one update for each key and mini-batch. */
final class KeyedSql {
    private KeyedSql() {}

    static void run(StreamExecutionEnvironment env, Job job, int parallelism, String counters, boolean check)
            throws Exception {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig()
            .set(ExecutionConfigOptions.TABLE_EXEC_MINIBATCH_ENABLED, true)
            .set(ExecutionConfigOptions.TABLE_EXEC_MINIBATCH_ALLOW_LATENCY, Duration.ofMillis(job.number("latency_ms")))
            .set(ExecutionConfigOptions.TABLE_EXEC_MINIBATCH_SIZE, job.number("batch_rows"))
            .set(OptimizerConfigOptions.TABLE_OPTIMIZER_AGG_PHASE_STRATEGY, AggregatePhaseStrategy.TWO_PHASE);
        RowDataEvents rows = new RowDataEvents(new Events(job));
        DataStream<RowData> events =
            env.fromSource(new PoolSource<>(rows, job.rows(), parallelism, counters), WatermarkStrategy.noWatermarks(), "rows", rows.type());
        tables.createTemporaryView("events", tables.fromDataStream(events).as("key", "ts", "v"));
        String query = "SELECT key, SUM(v) AS total FROM events GROUP BY key";
        if (check) {
            Table sums = tables.sqlQuery(query);
            DataStream<Row> changes = tables.toChangelogStream(sums);
            changes.sinkTo(new CheckedSink<>(row -> Digest.addLargest((Long) row.getField(0), ((Double) row.getField(1)).longValue())));
            env.execute("keyed_sql");
            return;
        }
        tables.executeSql("CREATE TABLE forgotten (key BIGINT, total DOUBLE) WITH ('connector' = 'blackhole')");
        tables.executeSql("INSERT INTO forgotten " + query).await();
    }

    /** Events as SQL's own rows, so that none is converted. */
    private static final class RowDataEvents implements Rows<RowData> {
        private final Events events;

        RowDataEvents(Events events) {
            this.events = events;
        }

        @Override
        public void open() {
            events.open();
        }

        @Override
        public RowData row(long number) {
            Tuple3<Long, Long, Double> event = events.row(number);
            return GenericRowData.of(event.f0, event.f1, event.f2);
        }

        @Override
        public TypeInformation<RowData> type() {
            return InternalTypeInfo.of(RowType.of(
                new LogicalType[] {new BigIntType(), new BigIntType(), new DoubleType()}, new String[] {"key", "ts", "v"}));
        }
    }
}
