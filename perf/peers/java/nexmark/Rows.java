package nexmark;

import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/** Sums up a changelog in this process: how often each row is there in the end. */
final class Rows implements Sink<Row> {
    private static final Map<String, Integer> COUNTS = new ConcurrentHashMap<>();
    private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("uuuu-MM-dd HH:mm:ss.SSS");

    static void forget() {
        COUNTS.clear();
    }

    /** Each row that is there, as its count and its values with tabs between them. */
    static List<String> lines() {
        return COUNTS.entrySet().stream().filter(entry -> entry.getValue() != 0)
            .map(entry -> entry.getValue() + "\t" + entry.getKey()).toList();
    }

    @Override
    public SinkWriter<Row> createWriter(WriterInitContext context) {
        return new Writer();
    }

    private static final class Writer implements SinkWriter<Row> {
        @Override
        public void write(Row row, Context context) {
            boolean comes = row.getKind() == RowKind.INSERT || row.getKind() == RowKind.UPDATE_AFTER;
            String values = IntStream.range(0, row.getArity()).mapToObj(i -> text(row.getField(i))).collect(Collectors.joining("\t"));
            COUNTS.merge(values, comes ? 1 : -1, Integer::sum);
        }

        private static String text(Object value) {
            return value instanceof LocalDateTime time ? TIME.format(time) : String.valueOf(value);
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
    }
}
