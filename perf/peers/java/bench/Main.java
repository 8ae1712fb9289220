package bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * {@code java bench.Main datastream|sql FOLDER PARALLELISM COUNTERS}: runs the job in FOLDER/check to its end and prints the
 * digest of its rows, then the one in FOLDER/run until standard input ends.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Programs.Api api = arguments[0].equals("sql") ? SqlPrograms::execute : Programs::execute;
        Path folder = Path.of(arguments[1]);
        int parallelism = Integer.parseInt(arguments[2]);
        endWithStandardInput();
        if (Files.exists(folder.resolve("check"))) {
            api.execute(new Run(environment(parallelism), new Job(folder.resolve("check").toString()), parallelism, arguments[3], true));
            System.out.println(Digest.line());
        }
        api.execute(new Run(environment(parallelism), new Job(folder.resolve("run").toString()), parallelism, arguments[3], false));
    }

    private static StreamExecutionEnvironment environment(int parallelism) {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, new Configuration());
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        env.getConfig().enableObjectReuse();
        return env;
    }

    private static void endWithStandardInput() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException error) {
                // The other side is gone, which is what this waits for.
            }
            Runtime.getRuntime().halt(0);
        });
        watcher.setDaemon(true);
        watcher.start();
    }
}
