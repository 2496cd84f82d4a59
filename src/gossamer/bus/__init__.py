"""The message bus: topics with consumer groups, batches and acknowledgements, on Valkey Streams or Kafka."""
