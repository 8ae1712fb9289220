package batch;

import java.net.URI;
import java.nio.file.Path;
import java.time.ZoneOffset;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.CoreOptions;
import org.apache.flink.configuration.DeploymentOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** The tables of one job, which are folders of Parquet files, and its statements. */
final class Tables {
    private final MiniCluster cluster;
    private final TableEnvironment tables;
    private final int parallelism;

    Tables(MiniCluster cluster, Configuration configuration, int parallelism) throws Exception {
        this.cluster = cluster;
        this.parallelism = parallelism;
        URI address = cluster.getRestAddress().get();
        Configuration own = new Configuration(configuration);
        own.set(DeploymentOptions.TARGET, "remote");
        own.set(RestOptions.ADDRESS, address.getHost());
        own.set(RestOptions.PORT, address.getPort());
        own.set(CoreOptions.DEFAULT_PARALLELISM, parallelism);
        tables = TableEnvironment.create(EnvironmentSettings.newInstance().inBatchMode().withConfiguration(own).build());
        tables.getConfig().setLocalTimeZone(ZoneOffset.UTC);
    }

    int parallelism() {
        return parallelism;
    }

    void create(String name, String columns, Path folder) {
        tables.executeSql("CREATE TABLE " + name + " (" + columns + ") WITH ('connector' = 'filesystem', 'format' = 'parquet', "
            + "'parquet.compression' = 'zstd', 'path' = '" + folder.toUri() + "')");
    }

    /** Runs these statements as one job to its end. */
    void insert(String... statements) throws Exception {
        var all = tables.createStatementSet();
        for (String statement : statements) {
            all.addInsertSql(statement);
        }
        TableResult started = all.execute();
        JobID job = started.getJobClient().orElseThrow().getJobID();
        // A client that asks over and over, as `await` does, hears of the end late: by as long again as the job took.
        cluster.requestJobResult(job).get().toJobExecutionResult(Tables.class.getClassLoader());
    }
}
