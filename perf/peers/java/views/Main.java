package views;

import bench.Counters;
import bench.Job;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Collectors;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.triggers.ContinuousEventTimeTrigger;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * {@code java views.Main FOLDER PARALLELISM COUNTERS SETTING=VALUE...}: the Yahoo streaming benchmark from Kafka to Redis, as
 * perf/ysb_kafka.py has it, until all that the topic has is read. Settings are Flink's own.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Job job = new Job(arguments[0]);
        Map<String, String> settings = Arrays.stream(arguments).skip(3).map(pair -> pair.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(
            Integer.parseInt(arguments[1]), Configuration.fromMap(settings));
        env.getConfig().enableObjectReuse();
        KafkaSource<Tuple3<String, String, Long>> events = KafkaSource.<Tuple3<String, String, Long>>builder()
            .setBootstrapServers(job.text("servers"))
            .setTopics(job.text("topic"))
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setBounded(OffsetsInitializer.latest())
            .setValueOnlyDeserializer(new Event())
            .build();
        WatermarkStrategy<Tuple3<String, String, Long>> inOrder = WatermarkStrategy
            .<Tuple3<String, String, Long>>forMonotonousTimestamps().withTimestampAssigner((event, before) -> event.f2);
        env.fromSource(events, inOrder, "events")
            .flatMap(new CampaignOfView(job, arguments[2])).returns(Types.LONG)
            .keyBy(campaign -> campaign, Types.LONG)
            .window(TumblingEventTimeWindows.of(Duration.ofMillis(job.number("size_ms"))))
            .trigger(ContinuousEventTimeTrigger.of(Duration.ofMillis(job.number("step_ms"))))
            .aggregate(new Count(), new WindowRow())
            .sinkTo(new RedisSink(job));
        env.execute("views");
    }

    /** The campaigns of the events that are views; all events are counted. */
    private static final class CampaignOfView extends RichFlatMapFunction<Tuple3<String, String, Long>, Long> {
        private final Job job;
        private final String file;
        private transient Map<String, Long> campaigns;
        private transient Counters counters;
        private transient int slot;
        private transient long events;

        CampaignOfView(Job job, String file) {
            this.job = job;
            this.file = file;
        }

        @Override
        public void open(OpenContext context) {
            counters = new Counters(file);
            slot = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            campaigns = new HashMap<>();
            long of = job.number("ads_of_a_campaign");
            for (byte[] ad : job.fixed("ad")) {
                campaigns.put(new String(ad, StandardCharsets.US_ASCII), campaigns.size() / of);
            }
        }

        @Override
        public void flatMap(Tuple3<String, String, Long> event, Collector<Long> out) {
            counters.set(slot, ++events);
            Long campaign = "view".equals(event.f1) ? campaigns.get(event.f0) : null;
            if (campaign != null) {
                out.collect(campaign);
            }
        }
    }

    private static final class Count implements AggregateFunction<Long, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long campaign, Long to) {
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

    /** Campaign, start of the window, views so far. */
    private static final class WindowRow extends ProcessWindowFunction<Long, long[], Long, TimeWindow> {
        @Override
        public void process(Long campaign, Context context, Iterable<Long> views, Collector<long[]> out) {
            out.collect(new long[] {campaign, context.window().getStart(), views.iterator().next()});
        }
    }
}
