package cases;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;

/**
 * {@code java cases.Main CASES ANSWERS}: answers the cases of a file by Flink, a JSON array of objects each. What a case is, and what
 * an answer, says tests/flink/__main__.py.
 */
public final class Main {
    private static final int CASES_A_JOB = 25;
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        List<JsonNode> cases = new ArrayList<>();
        JSON.readTree(Files.readString(Path.of(arguments[0]))).forEach(cases::add);
        TreeMap<Integer, Answer> answers = new TreeMap<>();
        List<Integer> together = new ArrayList<>();
        for (int number = 0; number < cases.size(); number++) {
            if (!cases.get(number).path("alone").asBoolean()) {
                together.add(number);
            }
        }
        for (int begin = 0; begin < together.size(); begin += CASES_A_JOB) {
            answer(cases, together.subList(begin, Math.min(begin + CASES_A_JOB, together.size())), answers);
        }
        for (int number = 0; number < cases.size(); number++) {
            if (cases.get(number).path("alone").asBoolean()) {
                answer(cases, List.of(number), answers);
            }
        }
        Files.writeString(Path.of(arguments[1]), JSON.writeValueAsString(answers.values()));
    }

    /** One job for all of these cases that Flink does not refuse. */
    private static void answer(List<JsonNode> cases, List<Integer> numbers, TreeMap<Integer, Answer> answers) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1);
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        DataStream<String> found = null;
        for (int number : numbers) {
            Answer answer = new Answer();
            answers.put(number, answer);
            JsonNode given = cases.get(number);
            try {
                DataStream<String> one = given.has("clause") ? Clauses.found(env, number, given) : Chains.found(env, number, given);
                found = found == null ? one : found.union(one);
            } catch (Exception error) {
                answer.error = error.getClass().getSimpleName();
            }
        }
        if (found == null) {
            return;
        }
        try {
            collect(found, answers);
        } catch (Exception error) {
            // Some patterns end Flink's operator; which one it was, a job for each says.
            if (numbers.size() == 1) {
                answers.get(numbers.get(0)).error = "the job has failed";
                return;
            }
            int middle = numbers.size() / 2;
            answer(cases, numbers.subList(0, middle), answers);
            answer(cases, numbers.subList(middle, numbers.size()), answers);
        }
    }

    private static void collect(DataStream<String> found, TreeMap<Integer, Answer> answers) throws Exception {
        try (CloseableIterator<String> lines = found.executeAndCollect()) {
            while (lines.hasNext()) {
                String[] line = lines.next().split("\t", 2);
                answers.get(Integer.parseInt(line[0])).rows.add(line[1]);
            }
        }
    }

    /** What Flink says of a case. */
    public static final class Answer {
        public String error;
        public List<String> rows = new ArrayList<>();
    }
}
