package cases;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * {@code java cases.Memory KEYS}: prints the bytes of heap that a key takes with one open partial match, as
 * perf/pattern_memory.py has it: by what lives behind a collection after a tenth of the keys, and after all of them.
 */
public final class Memory {
    private static final int BATCH = 65_536;
    private static final long WITHIN_MS = 3_600_000;

    private Memory() {}

    public static void main(String[] arguments) throws Exception {
        long keys = Long.parseLong(arguments[0]) / BATCH * BATCH;
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        DataStream<Tuple3<Long, Long, Double>> rows = env.fromSequence(0, keys)
            .map(new Row(keys)).returns(Types.TUPLE(Types.LONG, Types.LONG, Types.DOUBLE))
            .assignTimestampsAndWatermarks(WatermarkStrategy.<Tuple3<Long, Long, Double>>forGenerator(context -> new EachBatch())
                .withTimestampAssigner((row, before) -> row.f1));
        Pattern<Tuple3<Long, Long, Double>, ?> pattern = Pattern.<Tuple3<Long, Long, Double>>begin("a")
            .where(SimpleCondition.of(row -> row.f2 < 1)).followedBy("b").where(SimpleCondition.of(row -> row.f2 > 500))
            .within(Duration.ofMillis(WITHIN_MS));
        CEP.pattern(rows.keyBy(row -> row.f0, Types.LONG), pattern).process(new Keys(), Types.LONG).sinkTo(new DiscardingSink<>());
        env.execute();
    }

    /** The rows, whose last one waits until the others have been taken, and measures. */
    private static final class Row implements MapFunction<Long, Tuple3<Long, Long, Double>> {
        private final long keys;
        private final long few;
        private long before;

        Row(long keys) {
            this.keys = keys;
            this.few = Math.max(1, keys / BATCH / 10) * BATCH;
        }

        @Override
        public Tuple3<Long, Long, Double> map(Long number) throws Exception {
            if (number == few) {
                before = used();
            } else if (number == keys) {
                System.out.println((used() - before) / (keys - few));
                Runtime.getRuntime().halt(0);
            }
            return Tuple3.of(number, 1 + number * (WITHIN_MS / 2) / keys, 0.0);
        }

        /** Bytes that live, once that number has not changed for a second. */
        private static long used() throws InterruptedException {
            long last = -1;
            while (true) {
                System.gc();
                long now = Runtime.getRuntime().totalMemory() - Runtime.getRuntime().freeMemory();
                if (Math.abs(now - last) < 1 << 20) {
                    return now;
                }
                last = now;
                Thread.sleep(3_000);
            }
        }
    }

    private static final class EachBatch implements WatermarkGenerator<Tuple3<Long, Long, Double>> {
        @Override
        public void onEvent(Tuple3<Long, Long, Double> row, long at, WatermarkOutput output) {
            if ((row.f0 + 1) % BATCH == 0) {
                output.emitWatermark(new Watermark(at));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    private static final class Keys extends PatternProcessFunction<Tuple3<Long, Long, Double>, Long> {
        @Override
        public void processMatch(
                Map<String, List<Tuple3<Long, Long, Double>>> match, Context context, Collector<Long> out) {
            out.collect(match.get("a").get(0).f0);
        }
    }
}
