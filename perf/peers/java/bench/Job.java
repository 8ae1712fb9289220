package bench;

import java.io.IOException;
import java.io.Reader;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;

/**
 * A job as the Python side wrote it into a folder: {@code job.properties}, and a file of little-endian values for each prepared
 * column. Tasks get the folder's name and read the columns themselves, before the clock starts.
 */
public final class Job implements Serializable {
    private final String folder;
    private final Properties properties = new Properties();

    public Job(String folder) {
        this.folder = folder;
        try (Reader reader = Files.newBufferedReader(Path.of(folder, "job.properties"))) {
            properties.load(reader);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    public String text(String name) {
        String value = properties.getProperty(name);
        if (value == null) {
            throw new IllegalArgumentException(folder + "/job.properties has no " + name);
        }
        return value;
    }

    public long number(String name) {
        return Long.parseLong(text(name));
    }

    public boolean has(String name) {
        return properties.containsKey(name);
    }

    /** The rows of the input; no end where the file says none. */
    public long rows() {
        return has("rows") ? number("rows") : Long.MAX_VALUE;
    }

    public boolean hasColumn(String name) {
        return Files.exists(Path.of(folder, name + ".bin"));
    }

    public long[] longs(String column) {
        LongBuffer buffer = ByteBuffer.wrap(bytes(column)).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
        long[] values = new long[buffer.remaining()];
        buffer.get(values);
        return values;
    }

    public double[] doubles(String column) {
        double[] values = new double[bytes(column).length / Double.BYTES];
        ByteBuffer.wrap(bytes(column)).order(ByteOrder.LITTLE_ENDIAN).asDoubleBuffer().get(values);
        return values;
    }

    /** Texts that are all of one length. */
    public String[] lines(String column) {
        return Arrays.stream(fixed(column)).map(line -> new String(line, StandardCharsets.US_ASCII)).toArray(String[]::new);
    }

    /** The bytes of texts that are all as long as {@code COLUMN_bytes} says. */
    public byte[][] fixed(String column) {
        byte[] bytes = bytes(column);
        int length = (int) number(column + "_bytes");
        byte[][] texts = new byte[bytes.length / length][];
        for (int i = 0; i < texts.length; i++) {
            texts[i] = Arrays.copyOfRange(bytes, i * length, (i + 1) * length);
        }
        return texts;
    }

    private byte[] bytes(String column) {
        try {
            return Files.readAllBytes(Path.of(folder, column + ".bin"));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
