package batch;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;

/**
 * {@code java batch.Main PARALLELISM SETTING=VALUE...}: a cluster in this JVM, kept for all jobs. Each line of standard input names one,
 * as PROGRAM, the folder of its input and the one of its output, with tabs between them; "done" is printed when its files are there.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        int parallelism = Integer.parseInt(arguments[0]);
        Configuration configuration = settings(arguments);
        configuration.set(RestOptions.BIND_PORT, "0");
        MiniClusterConfiguration cluster = new MiniClusterConfiguration.Builder()
            .setConfiguration(configuration)
            .setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(parallelism)
            .build();
        int code = 0;
        try (MiniCluster running = new MiniCluster(cluster)) {
            running.start();
            runAll(running, configuration, parallelism);
        } catch (Exception error) {
            error.printStackTrace();
            code = 1;
        }
        // Flink leaves threads behind.
        Runtime.getRuntime().halt(code);
    }

    private static void runAll(MiniCluster cluster, Configuration configuration, int parallelism) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t");
            Programs.run(new Tables(cluster, configuration, parallelism), parts[0], parts[1], parts[2]);
            System.out.println("done");
        }
    }

    private static Configuration settings(String[] arguments) {
        Map<String, String> pairs = Arrays.stream(arguments).skip(1).map(pair -> pair.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        return Configuration.fromMap(pairs);
    }
}
