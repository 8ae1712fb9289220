package nexmark;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;

/**
 * {@code java nexmark.Main PARALLELISM SETTING=VALUE...}: a cluster in this JVM, kept for all jobs. Each line of standard input is an
 * order, a folder with {@code tables.sql} and {@code query.sql} or {@code insert.sql}, and a file, with tabs between them: "check" runs the query and
 * writes its rows into the file; "plan" plans the INSERT; "run" runs what was planned last. "start" starts a query that does not end, "rows" writes
 * those it has now, "heap" the bytes of the heap that are in use once those rows are forgotten and the garbage is collected, "savepoint" takes one
 * into the folder {@code savepoints} beside the file, and ends the job. "done" is printed behind each.
 */
public final class Main {
    private final MiniCluster cluster;
    private final Configuration settings;
    private final int parallelism;
    private JobGraph planned;
    private JobID started;

    private Main(MiniCluster cluster, Configuration settings, int parallelism) {
        this.cluster = cluster;
        this.settings = settings;
        this.parallelism = parallelism;
    }

    public static void main(String[] arguments) throws Exception {
        int parallelism = Integer.parseInt(arguments[0]);
        Configuration settings = settings(arguments);
        settings.set(RestOptions.BIND_PORT, "0");
        MiniClusterConfiguration configuration = new MiniClusterConfiguration.Builder()
            .setConfiguration(settings)
            .setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(parallelism)
            .build();
        int code = 0;
        try (MiniCluster cluster = new MiniCluster(configuration)) {
            cluster.start();
            new Main(cluster, settings, parallelism).obeyAll();
        } catch (Exception error) {
            error.printStackTrace();
            code = 1;
        }
        // Flink leaves threads behind.
        Runtime.getRuntime().halt(code);
    }

    private void obeyAll() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            obey(parts[0], Path.of(parts[1]), Path.of(parts[2]));
            System.out.println("done");
        }
    }

    private void obey(String order, Path folder, Path output) throws Exception {
        switch (order) {
            case "check" -> {
                Rows.forget();
                cluster.executeJobBlocking(job(folder).collected(text(folder, "query.sql")));
                Files.write(output, Rows.lines());
            }
            case "plan" -> planned = job(folder).inserted(text(folder, "insert.sql"));
            case "run" -> cluster.executeJobBlocking(planned);
            case "start" -> {
                Rows.forget();
                started = cluster.submitJob(job(folder).collected(text(folder, "query.sql"))).get().getJobID();
            }
            case "rows" -> Files.write(output, Rows.lines());
            case "heap" -> Files.writeString(output, Long.toString(heapInUse()));
            case "savepoint" -> {
                String target = output.resolveSibling("savepoints").toUri().toString();
                cluster.triggerSavepoint(started, target, true, SavepointFormatType.CANONICAL).get();
            }
            default -> throw new IllegalArgumentException("no order is called " + order);
        }
    }

    private static long heapInUse() {
        Rows.forget();
        System.gc();
        return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
    }

    private Job job(Path folder) throws Exception {
        Job job = new Job(settings, parallelism);
        for (String statement : text(folder, "tables.sql").split(";\n")) {
            job.define(statement);
        }
        return job;
    }

    private static String text(Path folder, String file) throws Exception {
        return Files.readString(folder.resolve(file));
    }

    private static Configuration settings(String[] arguments) {
        Map<String, String> pairs = Arrays.stream(arguments).skip(1).map(pair -> pair.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        return Configuration.fromMap(pairs);
    }
}
