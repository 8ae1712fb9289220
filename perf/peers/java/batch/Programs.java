package batch;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;

/** What is asked of batch mode, in Flink's SQL. */
final class Programs {
    private Programs() {}

    /** Runs the program of that name from folder to folder. */
    static void run(Tables tables, String program, String given, String output) throws Exception {
        Path from = Path.of(given);
        Path to = Path.of(output);
        switch (program) {
            case "batch_window" -> window(tables, from, to);
            case "hash_join" -> join(tables, from, to);
            case "terasort" -> sort(tables, from, to);
            default -> throw new IllegalArgumentException("no batch program is called " + program);
        }
    }

    /** By whole numbers, as one would in PySpark: with SQL's TUMBLE, which makes a time of each row first, it takes longer. */
    private static void window(Tables tables, Path given, Path output) throws Exception {
        tables.create("events", "key BIGINT, ts BIGINT, v DOUBLE", given);
        tables.create("windows", "key BIGINT, window_start TIMESTAMP_LTZ(3), window_end TIMESTAMP_LTZ(3), n BIGINT, total DOUBLE, "
            + "low DOUBLE, high DOUBLE", output);
        tables.insert("INSERT INTO windows SELECT key, TO_TIMESTAMP_LTZ(slot * 10000, 3), TO_TIMESTAMP_LTZ(slot * 10000 + 10000, 3), "
            + "n, total, low, high FROM (SELECT key, ts / 10000 AS slot, COUNT(*) AS n, SUM(v) AS total, MIN(v) AS low, MAX(v) AS high "
            + "FROM events GROUP BY key, ts / 10000)");
    }

    /** The planner knows from the files' statistics that one side is small. */
    private static void join(Tables tables, Path given, Path output) throws Exception {
        tables.create("facts", "`number` BIGINT, item BIGINT, `at` BIGINT, `text` STRING", given.resolve("facts"));
        tables.create("items", "id BIGINT, name STRING", given.resolve("items"));
        tables.create("joined", "`number` BIGINT, item BIGINT, `at` BIGINT, `text` STRING, name STRING", output);
        tables.insert("INSERT INTO joined SELECT `number`, item, `at`, `text`, name FROM facts JOIN items ON item = id");
    }

    /**
     * SQL sorts by one subtask. So there is a statement for each range of keys, between sampled boundaries, all in one job that reads the
     * files once; its folders are in order.
     */
    private static void sort(Tables tables, Path given, Path output) throws Exception {
        String columns = "key BYTES, payload BYTES";
        tables.create("records", columns, given);
        List<byte[]> boundaries = Sample.boundaries(given, "key", tables.parallelism());
        List<String> statements = new ArrayList<>();
        for (int range = 0; range < tables.parallelism(); range++) {
            String sorted = "sorted_" + range;
            tables.create(sorted, columns, output.resolve(String.format("range-%04d", range)));
            List<String> bounds = new ArrayList<>();
            if (range > 0) {
                bounds.add("key >= " + literal(boundaries.get(range - 1)));
            }
            if (range < boundaries.size()) {
                bounds.add("key < " + literal(boundaries.get(range)));
            }
            String where = bounds.isEmpty() ? "" : " WHERE " + String.join(" AND ", bounds);
            statements.add("INSERT INTO " + sorted + " SELECT key, payload FROM records" + where + " ORDER BY key");
        }
        tables.insert(statements.toArray(String[]::new));
    }

    private static String literal(byte[] key) {
        return "x'" + HexFormat.of().formatHex(key) + "'";
    }
}
