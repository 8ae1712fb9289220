package bench;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** What the PyFlink programs take from here. */
public final class Python {
    private Python() {}

    /** Pairs of whole numbers go to the digest. */
    public static Sink<Tuple2<Long, Long>> checkedPairs() {
        return new CheckedSink<>(pair -> Digest.add(pair.f0, pair.f1));
    }

    /** Pairs of whole numbers are dropped. */
    public static Sink<Tuple2<Long, Long>> droppedPairs() {
        return new DiscardingSink<>();
    }
}
