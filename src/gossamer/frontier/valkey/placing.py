"""Which shard a thing lives on."""

import xxhash


def shard_of(domain: str, shards: int) -> int:
    """A domain's shard: everything about its queues and throttle is there."""
    return 0 if shards == 1 else int(xxhash.xxh3_64_intdigest(domain.encode()) % shards)


def home_shard(token: str, shards: int) -> int:
    """A crawl's home: which run it is in, and which shards it touched."""
    return 0 if shards == 1 else int(xxhash.xxh3_64_intdigest(token.encode()) % shards)
