package batch;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.src.FileSourceSplit;
import org.apache.flink.connector.file.src.reader.BulkFormat;
import org.apache.flink.formats.parquet.ParquetColumnarRowInputFormat;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.VarBinaryType;

/** Keys from the beginning of each file, as Hadoop's TeraSort samples them. */
final class Sample {
    private static final int KEYS = 12_500;

    private Sample() {}

    /** Keys that part the rows of a folder into ranges that are about equal; one less than ranges. */
    static List<byte[]> boundaries(Path folder, String column, int ranges) throws IOException {
        List<byte[]> keys = new ArrayList<>();
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.toList()) {
                first(file, column, keys);
            }
        }
        keys.sort(Arrays::compareUnsigned);
        List<byte[]> boundaries = new ArrayList<>();
        for (int range = 1; range < ranges; range++) {
            boundaries.add(keys.get(keys.size() * range / ranges));
        }
        return boundaries;
    }

    private static void first(Path file, String column, List<byte[]> keys) throws IOException {
        RowType type = RowType.of(new LogicalType[] {new VarBinaryType(VarBinaryType.MAX_LENGTH)}, new String[] {column});
        var format = new ParquetColumnarRowInputFormat<FileSourceSplit>(
            new org.apache.hadoop.conf.Configuration(), type, InternalTypeInfo.of(type), KEYS, true, true);
        long size = Files.size(file);
        var split = new FileSourceSplit("sample", new org.apache.flink.core.fs.Path(file.toUri()), 0, size, 0, size);
        try (BulkFormat.Reader<RowData> reader = format.createReader(new Configuration(), split)) {
            BulkFormat.RecordIterator<RowData> batch = reader.readBatch();
            for (var row = batch == null ? null : batch.next(); row != null; row = batch.next()) {
                keys.add(row.getRecord().getBinary(0).clone());
            }
        }
    }
}
