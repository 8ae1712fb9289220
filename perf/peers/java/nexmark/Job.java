package nexmark;

import java.time.ZoneOffset;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/** One job: its tables, and its plan, which is ready to run. */
final class Job {
    private final StreamExecutionEnvironment env;
    private final StreamTableEnvironment tables;

    Job(Configuration settings, int parallelism) {
        env = new StreamExecutionEnvironment(settings);
        env.setParallelism(parallelism);
        env.setRuntimeMode(RuntimeExecutionMode.STREAMING);
        env.getConfig().enableObjectReuse();
        tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
        tables.createTemporarySystemFunction("side_of", Side.class);
    }

    void define(String statement) {
        tables.executeSql(statement);
    }

    /** The query, whose changes go to {@link Rows}. */
    JobGraph collected(String query) {
        tables.toChangelogStream(tables.sqlQuery(query)).sinkTo(new Rows());
        return env.getStreamGraph().getJobGraph();
    }

    /** The statement, which writes into a table. */
    JobGraph inserted(String statement) {
        tables.createStatementSet().addInsertSql(statement).attachAsDataStream();
        return env.getStreamGraph().getJobGraph();
    }
}
