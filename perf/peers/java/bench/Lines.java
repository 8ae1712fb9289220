package bench;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;

/** Prepared lines of text, repeated. */
public final class Lines implements Rows<String> {
    private final Job job;
    private transient String[] lines;

    public Lines(Job job) {
        this.job = job;
    }

    @Override
    public void open() {
        lines = job.lines("line");
    }

    @Override
    public String row(long number) {
        return lines[(int) (number % lines.length)];
    }

    @Override
    public TypeInformation<String> type() {
        return Types.STRING;
    }
}
