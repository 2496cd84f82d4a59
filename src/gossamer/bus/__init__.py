"""Named topics with consumer groups, batches and acknowledgements: Valkey Streams or Kafka."""
