package views;

import java.io.IOException;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonParser;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonToken;

/** (advertisement, type, time) of an event as JSON; the parser gives tokens, and no object for a whole event. */
final class Event implements DeserializationSchema<Tuple3<String, String, Long>> {
    private transient JsonFactory json;

    @Override
    public void open(InitializationContext context) {
        json = new JsonFactory();
    }

    @Override
    public Tuple3<String, String, Long> deserialize(byte[] message) throws IOException {
        Tuple3<String, String, Long> event = new Tuple3<>(null, null, 0L);
        try (JsonParser parser = json.createParser(message)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String field = parser.currentName();
                parser.nextToken();
                switch (field) {
                    case "ad_id" -> event.f0 = parser.getText();
                    case "event_type" -> event.f1 = parser.getText();
                    case "event_time" -> event.f2 = parser.getLongValue();
                    default -> parser.skipChildren();
                }
            }
        }
        return event;
    }

    @Override
    public boolean isEndOfStream(Tuple3<String, String, Long> event) {
        return false;
    }

    @Override
    public TypeInformation<Tuple3<String, String, Long>> getProducedType() {
        return Types.TUPLE(Types.STRING, Types.STRING, Types.LONG);
    }
}
