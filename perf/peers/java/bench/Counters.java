package bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The rows that each source has given so far, in a file that the Python side maps too: one int64 a cache line. */
public final class Counters {
    private static final int SLOT_BYTES = 64;
    private final MappedByteBuffer buffer;

    /** @param file the file, as large as there are slots */
    public Counters(String file) {
        try (FileChannel channel = FileChannel.open(Path.of(file), StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            buffer = channel.map(FileChannel.MapMode.READ_WRITE, 0, channel.size());
            buffer.order(ByteOrder.LITTLE_ENDIAN);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public void set(int slot, long rows) {
        buffer.putLong(slot * SLOT_BYTES, rows);
    }

    /** Of all slots. */
    public long total() {
        long total = 0;
        for (int at = 0; at < buffer.capacity(); at += SLOT_BYTES) {
            total += buffer.getLong(at);
        }
        return total;
    }
}
