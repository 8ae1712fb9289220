package cases;

import java.time.ZoneOffset;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** MATCH_RECOGNIZE of Flink's SQL over the rows of a case: key, name, value, number and their time, ts. */
final class Clauses {
    private Clauses() {}

    static DataStream<String> found(StreamExecutionEnvironment env, int number, JsonNode given) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
        Schema schema = Schema.newBuilder()
            .columnByExpression("k", "`key`").columnByExpression("letter", "name").columnByExpression("v", "`value`").columnByExpression("n", "number")
            .columnByMetadata("ts", DataTypes.TIMESTAMP_LTZ(3), "rowtime").watermark("ts", "SOURCE_WATERMARK()")
            .build();
        tables.createTemporaryView("events", Events.of(env, given), schema);
        String query = "SELECT * FROM events MATCH_RECOGNIZE (" + given.get("clause").asText() + ")";
        return tables.toDataStream(tables.sqlQuery(query)).map(row -> {
            StringBuilder text = new StringBuilder();
            for (int place = 0; place < row.getArity(); place++) {
                text.append(place == 0 ? "" : " ").append(row.getField(place));
            }
            return number + "\t" + text;
        }).returns(Types.STRING);
    }
}
