package bench;

import java.io.Serializable;
import java.util.function.Consumer;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Hands each row to the digest. */
public final class CheckedSink<T> implements Sink<T> {
    /** How a row is counted in. */
    public interface Take<T> extends Consumer<T>, Serializable {}

    private final Take<T> take;

    public CheckedSink(Take<T> take) {
        this.take = take;
    }

    @Override
    public SinkWriter<T> createWriter(WriterInitContext context) {
        return new Writer();
    }

    private final class Writer implements SinkWriter<T> {
        @Override
        public void write(T row, Context context) {
            take.accept(row);
        }

        @Override
        public void flush(boolean endOfInput) {}

        @Override
        public void close() {}
    }
}
