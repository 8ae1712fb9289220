package bench;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * One execution of a job.
 *
 * @param counters the file that says how many rows have been given; see {@link Counters}
 * @param check whether the rows of its result go to the digest, and are not just dropped
 */
record Run(StreamExecutionEnvironment env, Job job, int parallelism, String counters, boolean check) {
    <T> DataStream<T> input(Rows<T> rows) {
        return input(rows, WatermarkStrategy.noWatermarks());
    }

    <T> DataStream<T> input(Rows<T> rows, WatermarkStrategy<T> watermarks) {
        return env.fromSource(new PoolSource<>(rows, job.rows(), parallelism, counters), watermarks, "rows", rows.type());
    }
}
