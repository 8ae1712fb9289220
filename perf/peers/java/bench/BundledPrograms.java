package bench;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;

/** The DataStream programs with rows of a key summed up before they travel: what SQL's mini-batches do, written by hand. */
final class BundledPrograms {
    private BundledPrograms() {}

    /** Runs the program that the job names to the end of its input. */
    static void execute(Run run) throws Exception {
        String name = run.job().text("program");
        if (!name.equals("keyed_coalesced")) {
            throw new IllegalArgumentException("no program with bundles is called " + name);
        }
        Programs.sums(run, run.input(new Events(run.job()))
            .transform("bundle", Types.TUPLE(Types.LONG, Types.LONG, Types.DOUBLE), new Bundle()));
        run.env().execute(name);
    }

    /** (key, number of rows, sum) of so many rows; no sooner, as the input never rests. */
    private static final class Bundle extends AbstractStreamOperator<Tuple3<Long, Long, Double>>
            implements OneInputStreamOperator<Tuple3<Long, Long, Double>, Tuple3<Long, Long, Double>>, BoundedOneInput {
        private static final int ROWS = 131_072;
        private transient Map<Long, Sum> sums;
        private transient StreamRecord<Tuple3<Long, Long, Double>> given;
        private transient int rows;

        @Override
        public void open() throws Exception {
            super.open();
            sums = new HashMap<>();
            given = new StreamRecord<>(null);
        }

        @Override
        public void processElement(StreamRecord<Tuple3<Long, Long, Double>> row) {
            Sum sum = sums.computeIfAbsent(row.getValue().f0, key -> new Sum());
            sum.rows++;
            sum.total += row.getValue().f2;
            if (++rows == ROWS) {
                give();
            }
        }

        @Override
        public void endInput() {
            give();
        }

        private void give() {
            sums.forEach((key, sum) -> output.collect(given.replace(new Tuple3<>(key, sum.rows, sum.total))));
            sums.clear();
            rows = 0;
        }

        private static final class Sum {
            long rows;
            double total;
        }
    }
}
