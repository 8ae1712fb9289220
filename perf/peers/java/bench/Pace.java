package bench;

import java.io.Serializable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;

/** When rows are due: so many a second from the first that is asked for, in steps, as they come from a poll of a log. */
final class Pace implements Serializable {
    private final long rate;
    private final long stepNanos;
    private transient long start;

    Pace(long rate, long stepMs) {
        this.rate = rate;
        this.stepNanos = stepMs * 1_000_000;
    }

    /** The rows before this number are due as of the last whole step; {@code next} is the first that has not been given. */
    long dueBefore(long next) {
        begin(next);
        long passed = System.nanoTime() - start;
        return (long) ((passed - passed % stepNanos) * 1e-9 * rate);
    }

    CompletableFuture<Void> whenDue(long number) {
        if (number < dueBefore(number)) {
            return Rows.AT_ONCE;
        }
        long steps = nanos(number + 1) / stepNanos + 1;
        long left = start + steps * stepNanos - System.nanoTime();
        Executor later = CompletableFuture.delayedExecutor(Math.max(0, left), TimeUnit.NANOSECONDS);
        return CompletableFuture.runAsync(() -> {}, later);
    }

    /** When a row was due, by System.nanoTime(). */
    long due(long number) {
        return start + nanos(number);
    }

    private void begin(long number) {
        if (start == 0) {
            start = System.nanoTime() - nanos(number);
        }
    }

    private long nanos(long number) {
        return (long) (number * 1e9 / rate);
    }
}
