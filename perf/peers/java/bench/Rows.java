package bench;

import java.io.Serializable;
import org.apache.flink.api.common.typeinfo.TypeInformation;

/** What an input's rows are, by their numbers. */
public interface Rows<T> extends Serializable {
    /** Reads the prepared columns; called once by each task, before its first row. */
    void open();

    T row(long number);

    TypeInformation<T> type();
}
