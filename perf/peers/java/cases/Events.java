package cases;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The steps of a case: rows, and watermarks where the case has them. */
final class Events {
    private Events() {}

    /** A row, or (without a key) a watermark. Columns of SQL that are primitive here would never be null there. */
    public static final class Event {
        public Integer number;
        public String key;
        public String name;
        public Long value;
        public long at;
    }

    static DataStream<Event> of(StreamExecutionEnvironment env, JsonNode given) {
        List<Event> events = new ArrayList<>();
        int number = 0;
        for (JsonNode step : given.get("steps")) {
            Event event = new Event();
            event.number = number++;
            boolean isRow = step.get(0).asText().equals("el");
            event.key = isRow ? step.get(1).asText() : null;
            event.name = isRow ? step.get(2).asText() : "";
            event.value = isRow ? step.get(3).asLong() : 0L;
            event.at = step.get(isRow ? 4 : 1).asLong();
            events.add(event);
        }
        return env.fromCollection(events)
            .assignTimestampsAndWatermarks(
                WatermarkStrategy.<Event>forGenerator(context -> new AsGiven()).withTimestampAssigner((event, before) -> event.at))
            .filter(event -> event.key != null);
    }

    private static final class AsGiven implements WatermarkGenerator<Event> {
        @Override
        public void onEvent(Event event, long at, WatermarkOutput output) {
            if (event.key == null) {
                output.emitWatermark(new Watermark(event.at));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }
}
