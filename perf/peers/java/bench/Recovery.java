package bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * {@code java bench.Recovery FOLDER PARALLELISM COUNTERS HOST PORT STAMPS SETTING=VALUE...}: submits the job in FOLDER to a cluster and
 * prints "job ID". Each writer of its sink leaves the time of its first row in the folder STAMPS, as those of perf/recovery.py do.
 */
public final class Recovery {
    private Recovery() {}

    public static void main(String[] arguments) throws Exception {
        Configuration settings = Main.settings(arguments, 6);
        StreamExecutionEnvironment env =
            StreamExecutionEnvironment.createRemoteEnvironment(arguments[3], Integer.parseInt(arguments[4]), settings);
        int parallelism = Integer.parseInt(arguments[1]);
        env.setParallelism(parallelism);
        env.getConfig().enableObjectReuse();
        Run run = new Run(env, new Job(arguments[0]), parallelism, arguments[2], false);
        Checkpoints.aggregates(run).sinkTo(new StampingSink<>(arguments[5]));
        System.out.println("job " + env.executeAsync("recovery").getJobID());
        System.exit(0);
    }

    private static final class StampingSink<T> implements Sink<T> {
        private final String folder;

        StampingSink(String folder) {
            this.folder = folder;
        }

        @Override
        public SinkWriter<T> createWriter(WriterInitContext context) {
            String name = context.getTaskInfo().getIndexOfThisSubtask() + "-" + System.nanoTime();
            return new SinkWriter<>() {
                private boolean stamped;

                @Override
                public void write(T row, Context of) {
                    if (!stamped) {
                        stamped = true;
                        try {
                            Files.createFile(Path.of(folder, name + "-" + System.nanoTime()));
                        } catch (IOException error) {
                            throw new UncheckedIOException(error);
                        }
                    }
                }

                @Override
                public void flush(boolean endOfInput) {}

                @Override
                public void close() {}
            };
        }
    }
}
