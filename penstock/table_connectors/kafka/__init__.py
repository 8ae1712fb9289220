"""Tables of Kafka's topics."""
