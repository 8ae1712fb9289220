package bench;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.util.Collector;

/** The patterns of perf/patterns.py, by Flink's CEP library: key, first time, last time and number of rows of each match. */
final class Patterns {
    private Patterns() {}

    static DataStream<long[]> matches(Run run) {
        Job job = run.job();
        Events events = new Events(job);
        DataStream<Tuple3<Long, Long, Double>> rows = run.input(events, events.watermarks()).keyBy(event -> event.f0, Types.LONG);
        return CEP.pattern(rows, pattern(job)).process(new MatchRow(), PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO);
    }

    private static Pattern<Tuple3<Long, Long, Double>, ?> pattern(Job job) {
        Duration within = Duration.ofMillis(job.number("within_ms"));
        return switch (job.text("pattern")) {
            case "strict" -> begin(0, 100).next("b").where(between(501, 1000)).next("c").where(between(901, 1000));
            case "loop" -> begin(0, 100).next("b").where(between(100, 500)).oneOrMore().consecutive()
                .next("c").where(between(900, 1000)).within(within);
            case "iterative" -> begin(0, 20).followedBy("b").where(new MuchLarger()).within(within);
            default -> throw new IllegalArgumentException("no pattern is called " + job.text("pattern"));
        };
    }

    private static Pattern<Tuple3<Long, Long, Double>, Tuple3<Long, Long, Double>> begin(double from, double to) {
        return Pattern.<Tuple3<Long, Long, Double>>begin("a").where(between(from, to));
    }

    private static SimpleCondition<Tuple3<Long, Long, Double>> between(double from, double to) {
        return SimpleCondition.of(event -> event.f2 >= from && event.f2 < to);
    }

    private static final class MuchLarger extends IterativeCondition<Tuple3<Long, Long, Double>> {
        @Override
        public boolean filter(Tuple3<Long, Long, Double> event, Context<Tuple3<Long, Long, Double>> match) throws Exception {
            return event.f2 > 45 * match.getEventsForPattern("a").iterator().next().f2;
        }
    }

    private static final class MatchRow extends PatternProcessFunction<Tuple3<Long, Long, Double>, long[]> {
        @Override
        public void processMatch(Map<String, List<Tuple3<Long, Long, Double>>> match, Context context, Collector<long[]> out) {
            long key = 0;
            long first = Long.MAX_VALUE;
            long last = Long.MIN_VALUE;
            long count = 0;
            for (List<Tuple3<Long, Long, Double>> events : match.values()) {
                for (Tuple3<Long, Long, Double> event : events) {
                    key = event.f0;
                    first = Math.min(first, event.f1);
                    last = Math.max(last, event.f1);
                    count++;
                }
            }
            out.collect(new long[] {key, first, last, count});
        }
    }
}
