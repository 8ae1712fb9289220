package bench;

import java.net.URI;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * {@code java bench.Startup FOLDER PARALLELISM COUNTERS}: runs the job in FOLDER twice on one cluster in this JVM, and prints how many seconds
 * the second took from being submitted to its first row in the sink.
 */
public final class Startup {
    private static volatile long firstRow;

    private Startup() {}

    public static void main(String[] arguments) throws Exception {
        Job job = new Job(arguments[0]);
        int parallelism = Integer.parseInt(arguments[1]);
        Configuration configuration = new Configuration();
        configuration.set(RestOptions.BIND_PORT, "0");
        MiniClusterConfiguration settings = new MiniClusterConfiguration.Builder()
            .setConfiguration(configuration)
            .setNumTaskManagers(1)
            .setNumSlotsPerTaskManager(parallelism)
            .build();
        double seconds = 0;
        try (MiniCluster cluster = new MiniCluster(settings)) {
            cluster.start();
            URI address = cluster.getRestAddress().get();
            for (int time = 0; time < 2; time++) {
                StreamExecutionEnvironment env =
                    StreamExecutionEnvironment.createRemoteEnvironment(address.getHost(), address.getPort());
                env.setParallelism(parallelism);
                firstRow = 0;
                long start = System.nanoTime();
                Programs.count(new Run(env, job, parallelism, arguments[2], true), row -> noteRow());
                env.execute("startup");
                seconds = (firstRow - start) / 1e9;
            }
        }
        System.out.println("seconds " + seconds);
        System.exit(0);
    }

    private static void noteRow() {
        if (firstRow == 0) {
            firstRow = System.nanoTime();
        }
    }
}
