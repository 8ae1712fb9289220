package cases;

import cases.Events.Event;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.PatternStream;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.functions.TimedOutPartialMatchHandler;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.GroupPattern;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.WithinType;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Patterns of Flink's CEP, as tests/engine/patterns/cases.py writes them. */
final class Chains {
    private static final OutputTag<Event> LATE = new OutputTag<Event>("late") {};
    private static final OutputTag<String> SLOW = new OutputTag<String>("slow") {};

    private Chains() {}

    static DataStream<String> found(StreamExecutionEnvironment env, int number, JsonNode given) {
        Pattern<Event, ?> pattern = chain(given.get("pattern").get("stages"), skip(given.get("skip")));
        if (given.hasNonNull("within_ms")) {
            pattern = pattern.within(Duration.ofMillis(given.get("within_ms").asLong()), withinType(given.get("within_type").asText()));
        }
        PatternStream<Event> matches = CEP.pattern(Events.of(env, given).keyBy(event -> event.key, Types.STRING), pattern);
        SingleOutputStreamOperator<String> found = matches.sideOutputLateData(LATE).process(new Texts(number), Types.STRING);
        return found.union(
            found.getSideOutput(SLOW), found.getSideOutput(LATE).map(event -> number + "\tlate " + event.number).returns(Types.STRING));
    }

    private static WithinType withinType(String name) {
        return name.equals("first_and_last") ? WithinType.FIRST_AND_LAST : WithinType.PREVIOUS_AND_CURRENT;
    }

    private static AfterMatchSkipStrategy skip(JsonNode given) {
        return switch (given.get("kind").asText()) {
            case "to_next" -> AfterMatchSkipStrategy.skipToNext();
            case "past_last" -> AfterMatchSkipStrategy.skipPastLastEvent();
            case "to_first" -> AfterMatchSkipStrategy.skipToFirst(given.get("variable").asText());
            case "to_last" -> AfterMatchSkipStrategy.skipToLast(given.get("variable").asText());
            default -> AfterMatchSkipStrategy.noSkip();
        };
    }

    private static Pattern<Event, Event> chain(JsonNode stages, AfterMatchSkipStrategy skip) {
        Pattern<Event, Event> chained = null;
        for (JsonNode stage : stages) {
            Pattern<Event, Event> begun = stage.has("group")
                ? grouped(chained, stage, chain(stage.get("group"), AfterMatchSkipStrategy.noSkip()), skip)
                : named(chained, stage, stage.get("name").asText(), skip);
            chained = withOptions(begun, stage);
        }
        return chained;
    }

    private static Pattern<Event, Event> named(Pattern<Event, Event> chained, JsonNode stage, String name, AfterMatchSkipStrategy skip) {
        return chained == null ? Pattern.begin(name, skip) : switch (stage.get("contiguity").asText()) {
            case "next" -> chained.next(name);
            case "followedBy" -> chained.followedBy(name);
            case "followedByAny" -> chained.followedByAny(name);
            case "notNext" -> chained.notNext(name);
            default -> chained.notFollowedBy(name);
        };
    }

    private static Pattern<Event, Event> grouped(
            Pattern<Event, Event> chained, JsonNode stage, Pattern<Event, Event> inner, AfterMatchSkipStrategy skip) {
        GroupPattern<Event, Event> begun = chained == null ? Pattern.begin(inner, skip) : switch (stage.get("contiguity").asText()) {
            case "next" -> chained.next(inner);
            case "followedBy" -> chained.followedBy(inner);
            default -> chained.followedByAny(inner);
        };
        return begun;
    }

    private static Pattern<Event, Event> withOptions(Pattern<Event, Event> begun, JsonNode stage) {
        Pattern<Event, Event> pattern = begun;
        if (stage.has("condition")) {
            pattern = pattern.where(new Holds(stage.get("condition").toString()));
        }
        if (stage.has("quantifier")) {
            pattern = repeated(pattern, stage.get("quantifier"));
        }
        pattern = stage.path("consecutive").asBoolean() ? pattern.consecutive() : pattern;
        pattern = stage.path("combinations").asBoolean() ? pattern.allowCombinations() : pattern;
        pattern = stage.path("optional").asBoolean() ? pattern.optional() : pattern;
        pattern = stage.path("greedy").asBoolean() ? pattern.greedy() : pattern;
        if (stage.has("until")) {
            pattern = pattern.until(new Holds(stage.get("until").toString()));
        }
        if (stage.hasNonNull("gap_ms")) {
            pattern = pattern.within(Duration.ofMillis(stage.get("gap_ms").asLong()), WithinType.PREVIOUS_AND_CURRENT);
        }
        if (stage.hasNonNull("within_ms")) {
            pattern = pattern.within(Duration.ofMillis(stage.get("within_ms").asLong()));
        }
        return pattern;
    }

    private static Pattern<Event, Event> repeated(Pattern<Event, Event> pattern, JsonNode quantifier) {
        Duration gap = quantifier.hasNonNull("gap_ms") ? Duration.ofMillis(quantifier.get("gap_ms").asLong()) : null;
        return switch (quantifier.get("kind").asText()) {
            case "times" -> pattern.times(quantifier.get("n").asInt(), gap);
            case "times_range" -> pattern.times(quantifier.get("from").asInt(), quantifier.get("to").asInt(), gap);
            case "times_or_more" -> pattern.timesOrMore(quantifier.get("n").asInt(), gap);
            default -> pattern.oneOrMore(gap);
        };
    }

    /** A condition that is kept as text, as trees cannot be serialized. */
    private static final class Holds extends IterativeCondition<Event> {
        /** No case of a few rows asks as often, but an automaton that goes round for ever. */
        private static final int MOST_CALLS = 1_000_000;

        private final String text;
        private transient JsonNode condition;
        private transient int calls;

        Holds(String text) {
            this.text = text;
        }

        @Override
        public boolean filter(Event event, Context<Event> match) throws Exception {
            if (++calls > MOST_CALLS) {
                throw new IllegalStateException("the automaton goes round for ever");
            }
            if (condition == null) {
                condition = new ObjectMapper().readTree(text);
            }
            return holds(condition, event, match);
        }

        private static boolean holds(JsonNode test, Event event, Context<Event> match) throws Exception {
            switch (test.get("op").asText()) {
                case "true":
                    return true;
                case "name":
                    return event.name.equals(test.get("is").asText());
                case "gt":
                    return event.value > test.get("c").asLong();
                case "gt_last":
                    Event last = null;
                    for (Event before : match.getEventsForPattern(test.get("var").asText())) {
                        last = before;
                    }
                    return last == null || event.value > last.value;
                default:
                    boolean isOr = test.get("op").asText().equals("or");
                    for (JsonNode one : test.get("of")) {
                        if (holds(one, event, match) == isOr) {
                            return isOr;
                        }
                    }
                    return !isOr;
            }
        }
    }

    private static final class Texts extends PatternProcessFunction<Event, String> implements TimedOutPartialMatchHandler<Event> {
        private final int number;

        Texts(int number) {
            this.number = number;
        }

        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<String> out) {
            out.collect(number + "\tmatch " + text(match) + "@" + context.timestamp());
        }

        @Override
        public void processTimedOutMatch(Map<String, List<Event>> match, Context context) {
            context.output(SLOW, number + "\ttimeout " + text(match) + "@" + context.timestamp());
        }

        private static String text(Map<String, List<Event>> match) {
            String key = match.values().iterator().next().get(0).key;
            return key + "|" + match.entrySet().stream()
                .map(one -> one.getKey() + "=" + one.getValue().stream().map(event -> "" + event.number).collect(Collectors.joining(",")))
                .sorted().collect(Collectors.joining(";"));
        }
    }
}
