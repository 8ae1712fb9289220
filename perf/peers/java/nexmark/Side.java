package nexmark;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.functions.FunctionContext;
import org.apache.flink.table.functions.TableFunction;

/**
 * The side table of q13, 10,000 keys and their texts, kept by each subtask, as SQL's own rows: a lookup join calls such a function, too.
 * Flink's files cannot be looked up in.
 */
@FunctionHint(output = @DataTypeHint(value = "ROW<`key` BIGINT, `value` STRING>", bridgedTo = RowData.class))
public final class Side extends TableFunction<RowData> {
    private static final int KEYS = 10_000;
    private transient Map<Long, RowData> rows;

    @Override
    public void open(FunctionContext context) {
        rows = new HashMap<>();
        for (long key = 0; key < KEYS; key++) {
            rows.put(key, GenericRowData.of(key, StringData.fromString(Long.toString(key))));
        }
    }

    public void eval(Long key) {
        RowData row = rows.get(key);
        if (row != null) {
            collect(row);
        }
    }
}
