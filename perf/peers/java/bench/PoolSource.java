package bench;

import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource.NumberSequenceSplit;
import org.apache.flink.api.java.typeutils.ResultTypeQueryable;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Rows by number, as DataGenSource of Penstock gives them: subtask s of p reads the rows s, s + p, s + 2p...
 *
 * <p>Flink's own DataGeneratorSource gives each subtask a range instead, so that one is hours of event time ahead of the other, and
 * emits one row a call. This one emits a block a call: it is the cheaper of the two. Rows that are due at a time are given when they are.
 * A split goes from the number of a subtask to that of its next row.
 */
public final class PoolSource<T>
        implements Source<T, NumberSequenceSplit, Collection<NumberSequenceSplit>>, ResultTypeQueryable<T> {
    private static final int BLOCK_ROWS = 256;
    private final Rows<T> rows;
    private final long end;
    private final int parallelism;
    private final String counters;
    private final NumberSequenceSource subtasks;

    /**
     * @param end how many rows there are
     * @param counters the file that says how many have been given; see {@link Counters}
     */
    public PoolSource(Rows<T> rows, long end, int parallelism, String counters) {
        this.rows = rows;
        this.end = end;
        this.parallelism = parallelism;
        this.counters = counters;
        this.subtasks = new NumberSequenceSource(0, parallelism - 1);
    }

    @Override
    public Boundedness getBoundedness() {
        return end == Long.MAX_VALUE ? Boundedness.CONTINUOUS_UNBOUNDED : Boundedness.BOUNDED;
    }

    @Override
    public TypeInformation<T> getProducedType() {
        return rows.type();
    }

    @Override
    public SourceReader<T, NumberSequenceSplit> createReader(SourceReaderContext context) {
        return new Reader(context);
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> createEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context) {
        return subtasks.createEnumerator(context);
    }

    @Override
    public SplitEnumerator<NumberSequenceSplit, Collection<NumberSequenceSplit>> restoreEnumerator(
            SplitEnumeratorContext<NumberSequenceSplit> context, Collection<NumberSequenceSplit> checkpoint) {
        return subtasks.restoreEnumerator(context, checkpoint);
    }

    @Override
    public SimpleVersionedSerializer<NumberSequenceSplit> getSplitSerializer() {
        return subtasks.getSplitSerializer();
    }

    @Override
    public SimpleVersionedSerializer<Collection<NumberSequenceSplit>> getEnumeratorCheckpointSerializer() {
        return subtasks.getEnumeratorCheckpointSerializer();
    }

    private final class Reader implements SourceReader<T, NumberSequenceSplit> {
        private final SourceReaderContext context;
        private final CompletableFuture<Void> assigned = new CompletableFuture<>();
        private Counters given;
        private String split;
        private int subtask = -1;
        private long next;
        private long count;

        Reader(SourceReaderContext context) {
            this.context = context;
        }

        @Override
        public void start() {
            rows.open();
            given = new Counters(counters);
            if (subtask < 0) {
                context.sendSplitRequest();
            }
        }

        @Override
        public InputStatus pollNext(ReaderOutput<T> output) {
            if (subtask < 0) {
                return assigned.isDone() ? InputStatus.END_OF_INPUT : InputStatus.NOTHING_AVAILABLE;
            }
            long until = Math.min(end, rows.dueBefore(next));
            for (int n = 0; n < BLOCK_ROWS && next < until; n++) {
                output.collect(rows.row(next));
                next += parallelism;
                count++;
            }
            given.set(subtask, count);
            if (next >= end) {
                return InputStatus.END_OF_INPUT;
            }
            return next < until ? InputStatus.MORE_AVAILABLE : InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            return subtask < 0 ? assigned : rows.whenDue(next);
        }

        @Override
        public void addSplits(List<NumberSequenceSplit> splits) {
            split = splits.get(0).splitId();
            subtask = (int) splits.get(0).from();
            next = splits.get(0).to();
            assigned.complete(null);
        }

        @Override
        public void notifyNoMoreSplits() {
            assigned.complete(null);
        }

        @Override
        public List<NumberSequenceSplit> snapshotState(long checkpointId) {
            return subtask < 0 ? List.of() : List.of(new NumberSequenceSplit(split, subtask, next));
        }

        @Override
        public void close() {}
    }
}
