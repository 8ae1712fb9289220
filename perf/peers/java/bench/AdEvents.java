package bench;

import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;

/** A log of JSON texts played again and again, with the milliseconds at which the log begins; see perf/ysb.py. */
final class AdEvents implements Rows<Tuple2<byte[], Long>> {
    private final Job job;
    private transient byte[][] lines;
    private transient long lapRows;
    private transient long lapMs;
    private transient long startMs;

    AdEvents(Job job) {
        this.job = job;
    }

    @Override
    public void open() {
        lines = job.fixed("line");
        lapRows = job.number("lap_rows");
        lapMs = job.number("lap_ms");
        startMs = job.number("start_ms");
    }

    @Override
    public Tuple2<byte[], Long> row(long number) {
        return new Tuple2<>(lines[(int) (number % lines.length)], startMs + number / lapRows * lapMs);
    }

    @Override
    public TypeInformation<Tuple2<byte[], Long>> type() {
        return new TupleTypeInfo<>(PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO, Types.LONG);
    }
}
