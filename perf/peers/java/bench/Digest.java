package bench;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;

/** A hash of a job's rows, whatever their order; perf/peers/digest.py computes the same. */
public final class Digest {
    private static final long GOLDEN = 0x9E3779B97F4A7C15L;
    private static final LongAdder ROWS = new LongAdder();
    private static final LongAdder HASH = new LongAdder();
    private static final Map<Long, long[]> LARGEST = new ConcurrentHashMap<>();

    private Digest() {}

    /** Counts a row in. */
    public static void add(long... columns) {
        long hash = 0;
        for (long column : columns) {
            hash = mixed(hash + GOLDEN ^ column);
        }
        ROWS.increment();
        HASH.add(hash);
    }

    /** Counts in the one of a key's rows (key, number that grows, more) whose number is the largest, once all have come. */
    public static void addLargest(long... row) {
        LARGEST.merge(row[0], row, (a, b) -> a[1] >= b[1] ? a : b);
    }

    /** "digest ROWS HASH", the hash in decimal, unsigned. */
    public static String line() {
        LARGEST.values().forEach(Digest::add);
        return "digest " + ROWS.sum() + " " + Long.toUnsignedString(HASH.sum());
    }

    private static long mixed(long value) {
        long hash = (value ^ value >>> 33) * 0xFF51AFD7ED558CCDL;
        hash = (hash ^ hash >>> 33) * 0xC4CEB9FE1A85EC53L;
        return hash ^ hash >>> 33;
    }
}
