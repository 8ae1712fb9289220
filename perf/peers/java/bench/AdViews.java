package bench;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The Yahoo streaming benchmark, as perf/ysb.py has it. */
final class AdViews {
    private AdViews() {}

    /** (campaign, start of window, views). */
    static DataStream<long[]> of(Run run) {
        Job job = run.job();
        return run.input(new AdEvents(job))
            .flatMap(new CampaignOfView(job)).returns(Types.TUPLE(Types.LONG, Types.LONG))
            .assignTimestampsAndWatermarks(WatermarkStrategy.<Tuple2<Long, Long>>forMonotonousTimestamps()
                .withTimestampAssigner((view, before) -> view.f1))
            .keyBy(view -> view.f0, Types.LONG)
            .window(TumblingEventTimeWindows.of(Duration.ofMillis(job.number("size_ms"))))
            .aggregate(new Count(), new WindowRow());
    }

    /** (campaign, time) of the events that are views; the parser gives tokens, and no object for a whole event. */
    private static final class CampaignOfView extends RichFlatMapFunction<Tuple2<byte[], Long>, Tuple2<Long, Long>> {
        private final Job job;
        private transient JsonFactory json;
        private transient Map<String, Long> campaigns;

        CampaignOfView(Job job) {
            this.job = job;
        }

        @Override
        public void open(OpenContext context) {
            json = new JsonFactory();
            campaigns = new HashMap<>();
            long of = job.number("ads_of_a_campaign");
            for (byte[] ad : job.fixed("ad")) {
                campaigns.put(new String(ad, StandardCharsets.US_ASCII), campaigns.size() / of);
            }
        }

        @Override
        public void flatMap(Tuple2<byte[], Long> event, Collector<Tuple2<Long, Long>> out) throws IOException {
            String ad = null;
            String type = null;
            long time = 0;
            try (JsonParser parser = json.createParser(event.f0)) {
                parser.nextToken();
                while (parser.nextToken() == JsonToken.FIELD_NAME) {
                    String field = parser.currentName();
                    parser.nextToken();
                    switch (field) {
                        case "ad_id" -> ad = parser.getText();
                        case "event_type" -> type = parser.getText();
                        case "event_time" -> time = parser.getLongValue();
                        default -> parser.skipChildren();
                    }
                }
            }
            Long campaign = "view".equals(type) ? campaigns.get(ad) : null;
            if (campaign != null) {
                out.collect(new Tuple2<>(campaign, event.f1 + time));
            }
        }
    }

    private static final class Count implements AggregateFunction<Tuple2<Long, Long>, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Tuple2<Long, Long> view, Long to) {
            return to + 1;
        }

        @Override
        public Long getResult(Long accumulator) {
            return accumulator;
        }

        @Override
        public Long merge(Long a, Long b) {
            return a + b;
        }
    }

    private static final class WindowRow extends ProcessWindowFunction<Long, long[], Long, TimeWindow> {
        @Override
        public void process(Long campaign, Context context, Iterable<Long> views, Collector<long[]> out) {
            out.collect(new long[] {campaign, context.window().getStart(), views.iterator().next()});
        }
    }
}
