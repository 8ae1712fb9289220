import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.autoscaler.DelayedScaleDown;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.apache.flink.autoscaler.JobVertexScaler;
import org.apache.flink.autoscaler.ScalingMetricEvaluator;
import org.apache.flink.autoscaler.event.LoggingEventHandler;
import org.apache.flink.autoscaler.metrics.CollectedMetricHistory;
import org.apache.flink.autoscaler.metrics.CollectedMetrics;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.FlinkMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetrics;
import org.apache.flink.autoscaler.topology.IOMetrics;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.autoscaler.topology.ShipStrategy;
import org.apache.flink.autoscaler.topology.VertexInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.apache.flink.runtime.rest.messages.job.metrics.AggregatedMetric;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * {@code java Decisions CASES ANSWERS}: what Flink's autoscaler makes of jobs, a JSON array of them. What a job is, and what an answer,
 * says traces.py. The metrics of each reading go the way on which those of Flink's REST go.
 */
public final class Decisions {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Decisions() {}

    public static void main(String[] arguments) throws Exception {
        List<Object> answers = new ArrayList<>();
        for (JsonNode given : JSON.readTree(Files.readString(Path.of(arguments[0])))) {
            answers.add(answer(given));
        }
        Files.writeString(Path.of(arguments[1]), JSON.writeValueAsString(answers));
    }

    private static List<Map<String, Object>> answer(JsonNode given) {
        Configuration settings = new Configuration();
        given.get("settings").fields().forEachRemaining(one -> settings.setString(one.getKey(), one.getValue().asText()));
        Duration restart = Duration.ofSeconds(given.get("restart_seconds").asLong());
        TreeMap<Instant, CollectedMetrics> history = new TreeMap<>();
        JobTopology last = null;
        for (JsonNode reading : given.get("readings")) {
            last = topology(given, reading);
            Instant at = Instant.ofEpochSecond(reading.get("at").asLong());
            history.put(at, new CollectedMetrics(collected(given, reading, last, settings), Map.of()));
        }
        CollectedMetricHistory collected = new CollectedMetricHistory(last, history, history.firstKey());
        var evaluated = new ScalingMetricEvaluator().evaluate(settings, collected, restart).getVertexMetrics();
        JobAutoScalerContext<String> context =
                new JobAutoScalerContext<>("job", new JobID(), JobStatus.RUNNING, settings, null, null);
        var scaler = new JobVertexScaler<String, JobAutoScalerContext<String>>(new LoggingEventHandler<>());
        List<Map<String, Object>> answers = new ArrayList<>();
        for (JsonNode task : given.get("tasks")) {
            JobVertexID vertex = id(task.get("id").asInt());
            Map<ScalingMetric, EvaluatedScalingMetric> figures = evaluated.get(vertex);
            var change =
                    scaler.computeScaleTargetParallelism(
                            context,
                            vertex,
                            last.get(vertex).getInputs().values(),
                            figures,
                            new TreeMap<>(),
                            restart,
                            new DelayedScaleDown());
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("true_rate", figures.get(ScalingMetric.TRUE_PROCESSING_RATE).getAverage());
            answer.put("target_rate", figures.get(ScalingMetric.TARGET_DATA_RATE).getAverage());
            answer.put("catch_up_rate", figures.get(ScalingMetric.CATCH_UP_DATA_RATE).getCurrent());
            answer.put("too_slow_below", figures.get(ScalingMetric.SCALE_UP_RATE_THRESHOLD).getCurrent());
            answer.put("too_idle_above", bounded(figures.get(ScalingMetric.SCALE_DOWN_RATE_THRESHOLD).getCurrent()));
            int wanted = change.getNewParallelism();
            answer.put("wanted", wanted > 0 ? wanted : task.get("parallelism").asInt());
            answers.add(answer);
        }
        return answers;
    }

    /** JSON has no infinity. */
    private static Double bounded(double value) {
        return Double.isInfinite(value) ? null : value;
    }

    private static JobVertexID id(int number) {
        return new JobVertexID(number, 0);
    }

    private static JobTopology topology(JsonNode given, JsonNode reading) {
        List<VertexInfo> vertices = new ArrayList<>();
        for (JsonNode task : given.get("tasks")) {
            Map<JobVertexID, ShipStrategy> inputs = new HashMap<>();
            task.get("inputs").forEach(one -> inputs.put(id(one.get(0).asInt()), ShipStrategy.of(one.get(1).asText())));
            JsonNode counted = reading.get("tasks").get(vertices.size());
            IOMetrics io = new IOMetrics(counted.get("in").asLong(), counted.get("out").asLong(), counted.get("busy_ms").asDouble());
            int parallelism = task.get("parallelism").asInt();
            vertices.add(new VertexInfo(id(task.get("id").asInt()), inputs, parallelism, task.get("most").asInt(), io));
        }
        return new JobTopology(vertices);
    }

    private static Map<JobVertexID, Map<ScalingMetric, Double>> collected(
            JsonNode given, JsonNode reading, JobTopology topology, Configuration settings) {
        Map<JobVertexID, Map<ScalingMetric, Double>> collected = new HashMap<>();
        int place = 0;
        for (JsonNode counted : reading.get("tasks")) {
            JobVertexID vertex = id(given.get("tasks").get(place++).get("id").asInt());
            Map<FlinkMetric, AggregatedMetric> metrics = new HashMap<>();
            metrics.put(FlinkMetric.BUSY_TIME_PER_SEC, same(counted.get("busy_ms_per_second").asDouble()));
            if (topology.isSource(vertex)) {
                double rate = counted.get("rate").asDouble();
                metrics.put(FlinkMetric.SOURCE_TASK_NUM_RECORDS_IN_PER_SEC, same(rate));
                metrics.put(FlinkMetric.SOURCE_TASK_NUM_RECORDS_IN, same(counted.get("in").asDouble()));
                metrics.put(FlinkMetric.BACKPRESSURE_TIME_PER_SEC, same(counted.get("blocked_ms_per_second").asDouble()));
                metrics.put(FlinkMetric.PENDING_RECORDS, same(counted.get("pending").asDouble()));
            }
            Map<ScalingMetric, Double> found = new HashMap<>();
            ScalingMetrics.computeLagMetrics(metrics, found);
            ScalingMetrics.computeLoadMetrics(vertex, metrics, found, topology.get(vertex).getIoMetrics(), settings);
            ScalingMetrics.computeDataRateMetrics(vertex, metrics, found, topology, settings, () -> Double.NaN);
            collected.put(vertex, found);
        }
        return collected;
    }

    /** A metric of which there is one value. */
    private static AggregatedMetric same(double value) {
        return new AggregatedMetric("", value, value, value, value, 0.0);
    }
}
