package bench;

import java.net.URI;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.CloseableIterator;

/**
 * {@code java bench.Startup FOLDER PARALLELISM COUNTERS SETTING=VALUE...}: runs the job in FOLDER twice on one cluster in this JVM, and
 * prints how many seconds the second took from being submitted to its first row at the client, which takes in all rows.
 */
public final class Startup {
    private Startup() {}

    public static void main(String[] arguments) throws Exception {
        Job job = new Job(arguments[0]);
        int parallelism = Integer.parseInt(arguments[1]);
        Configuration configuration = Main.settings(arguments, 3);
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
                seconds = secondsToFirstRow(new Run(env, job, parallelism, arguments[2], true));
            }
        }
        System.out.println("seconds " + seconds);
        System.exit(0);
    }

    private static double secondsToFirstRow(Run run) throws Exception {
        long start = System.nanoTime();
        try (CloseableIterator<Tuple2<Long, Long>> rows = Programs.counts(run).executeAndCollect("startup")) {
            rows.next();
            double seconds = (System.nanoTime() - start) / 1e9;
            long given = 1;
            for (; rows.hasNext(); rows.next()) {
                given++;
            }
            if (given != run.job().rows()) {
                throw new IllegalStateException(given + " rows, not " + run.job().rows());
            }
            return seconds;
        }
    }
}
