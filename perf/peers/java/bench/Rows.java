package bench;

import java.io.Serializable;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.typeinfo.TypeInformation;

/** What an input's rows are, by their numbers. */
public interface Rows<T> extends Serializable {
    CompletableFuture<Void> AT_ONCE = CompletableFuture.completedFuture(null);

    /** Reads the prepared columns; called once by each task, before its first row. */
    void open();

    T row(long number);

    TypeInformation<T> type();

    /** The rows before this number are due by now; {@code next} is the first that has not been given. */
    default long dueBefore(long next) {
        return Long.MAX_VALUE;
    }

    /** Completed when a row is due. */
    default CompletableFuture<Void> whenDue(long number) {
        return AT_ONCE;
    }
}
