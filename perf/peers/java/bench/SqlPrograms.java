package bench;

import java.time.Duration;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.types.Row;

/**
 * The benchmarks in Flink's SQL, where that may be its best: slices that windows share, and, by its settings (perf/peers/engines.py),
 * mini-batches in one phase or two.
 */
final class SqlPrograms {
    private final Run run;
    private final StreamTableEnvironment tables;

    private SqlPrograms(Run run) {
        this.run = run;
        this.tables = StreamTableEnvironment.create(run.env());
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
    }

    /** Runs the program that the job names to the end of its input. */
    static void execute(Run run) throws Exception {
        SqlPrograms programs = new SqlPrograms(run);
        String name = run.job().text("program");
        switch (name) {
            case "keyed_coalesced" -> programs.keyed();
            case "window" -> programs.window();
            case "match_recognize" -> programs.matches();
            default -> throw new IllegalArgumentException("no SQL program is called " + name);
        }
    }

    private void keyed() throws Exception {
        events(WatermarkStrategy.noWatermarks(), schema().build());
        output("SELECT key, SUM(v) AS total FROM events GROUP BY key", "key BIGINT, total DOUBLE",
            row -> Digest.addLargest((Long) row.getField(0), whole(row, 1)));
    }

    private void matches() throws Exception {
        timedEvents();
        output("SELECT * FROM events MATCH_RECOGNIZE (" + run.job().text("clause") + ")", "key BIGINT, begins BIGINT, ends BIGINT, n BIGINT",
            row -> Digest.add((Long) row.getField(0), (Long) row.getField(1), (Long) row.getField(2), (Long) row.getField(3)));
    }

    private void window() throws Exception {
        timedEvents();
        output("SELECT key, window_start, window_end, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS low, MAX(v) AS high FROM TABLE("
                + windows() + ") GROUP BY key, window_start, window_end",
            "key BIGINT, window_start TIMESTAMP(3), window_end TIMESTAMP(3), n BIGINT, total DOUBLE, low DOUBLE, high DOUBLE",
            row -> Digest.add((Long) row.getField(0), millis(row, 1), millis(row, 2), (Long) row.getField(3), whole(row, 4),
                whole(row, 5), whole(row, 6)));
    }

    private void timedEvents() {
        Schema timed = schema()
            .columnByMetadata("rowtime", "TIMESTAMP_LTZ(3)")
            .watermark("rowtime", "SOURCE_WATERMARK()")
            .build();
        Duration behind = Duration.ofMillis(run.job().number("watermark_ms"));
        events(WatermarkStrategy.<RowData>forBoundedOutOfOrderness(behind)
            .withTimestampAssigner((row, before) -> row.getLong(1)), timed);
    }

    private String windows() {
        Job job = run.job();
        if (job.has("gap_ms")) {
            return "SESSION(TABLE events PARTITION BY key, DESCRIPTOR(rowtime), " + seconds("gap_ms") + ")";
        }
        if (job.number("slide_ms") == job.number("size_ms")) {
            return "TUMBLE(TABLE events, DESCRIPTOR(rowtime), " + seconds("size_ms") + ")";
        }
        return "HOP(TABLE events, DESCRIPTOR(rowtime), " + seconds("slide_ms") + ", " + seconds("size_ms") + ")";
    }

    private String seconds(String setting) {
        return "INTERVAL '" + run.job().number(setting) / 1000 + "' SECOND(3)";
    }

    private static Schema.Builder schema() {
        return Schema.newBuilder().column("key", "BIGINT").column("ts", "BIGINT").column("v", "DOUBLE");
    }

    private void events(WatermarkStrategy<RowData> watermarks, Schema schema) {
        DataStream<RowData> events = run.input(new RowDataEvents(new Events(run.job())), watermarks);
        tables.createTemporaryView("events", tables.fromDataStream(events, schema));
    }

    private void output(String query, String columns, CheckedSink.Take<Row> take) throws Exception {
        if (run.check()) {
            tables.toChangelogStream(tables.sqlQuery(query)).sinkTo(new CheckedSink<>(take));
            run.env().execute(run.job().text("program"));
        } else {
            tables.executeSql("CREATE TABLE forgotten (" + columns + ") WITH ('connector' = 'blackhole')");
            tables.executeSql("INSERT INTO forgotten " + query).await();
        }
    }

    private static long whole(Row row, int column) {
        return ((Double) row.getField(column)).longValue();
    }

    private static long millis(Row row, int column) {
        return ((LocalDateTime) row.getField(column)).toInstant(ZoneOffset.UTC).toEpochMilli();
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
