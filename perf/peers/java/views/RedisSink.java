package views;

import bench.Job;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.Pipeline;

/** Keeps a hash for each campaign and window, at least once: all rows before a checkpoint are in Redis when it is taken. */
final class RedisSink implements Sink<long[]> {
    /** So many campaigns there are in the benchmark: each time that windows fire, they travel together. */
    private static final int TOGETHER = 100;
    private final Job job;

    RedisSink(Job job) {
        this.job = job;
    }

    @Override
    public SinkWriter<long[]> createWriter(WriterInitContext context) {
        return new Writer();
    }

    private final class Writer implements SinkWriter<long[]> {
        private final Jedis client = new Jedis(job.text("redis_host"), (int) job.number("redis_port"));
        private final String prefix = job.text("prefix");
        private final Pipeline pipeline;
        private int waiting;

        Writer() {
            client.auth(job.text("redis_password"));
            pipeline = client.pipelined();
        }

        @Override
        public void write(long[] row, Context context) {
            pipeline.hset(prefix + row[0] + ":" + row[1], "views", Long.toString(row[2]));
            if (++waiting == TOGETHER) {
                flush(false);
            }
        }

        @Override
        public void flush(boolean endOfInput) {
            pipeline.sync();
            waiting = 0;
        }

        @Override
        public void close() {
            client.close();
        }
    }
}
