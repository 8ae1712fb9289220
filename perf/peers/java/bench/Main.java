package bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * {@code java bench.Main datastream|bundled|sql FOLDER PARALLELISM COUNTERS SETTING=VALUE...}: runs the job in FOLDER/check to its
 * end and prints the digest of its rows, then the one in FOLDER/run until standard input ends. Settings are Flink's own.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Programs.Api api = switch (arguments[0]) {
            case "sql" -> SqlPrograms::execute;
            case "bundled" -> BundledPrograms::execute;
            default -> Programs::execute;
        };
        Path folder = Path.of(arguments[1]);
        int parallelism = Integer.parseInt(arguments[2]);
        Configuration settings = settings(arguments, 4);
        endWithStandardInput();
        if (Files.exists(folder.resolve("check"))) {
            api.execute(new Run(environment(parallelism, settings), new Job(folder.resolve("check").toString()), parallelism, arguments[3], true));
            System.out.println(Digest.line());
        }
        api.execute(new Run(environment(parallelism, settings), new Job(folder.resolve("run").toString()), parallelism, arguments[3], false));
        // Of a job without end, nothing comes here.
        System.out.println(Latency.line());
    }

    /** The settings among the arguments, from number {@code first} on. */
    static Configuration settings(String[] arguments, int first) {
        Map<String, String> pairs = Arrays.stream(arguments).skip(first).map(pair -> pair.split("=", 2))
            .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        return Configuration.fromMap(pairs);
    }

    private static StreamExecutionEnvironment environment(int parallelism, Configuration settings) {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
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
