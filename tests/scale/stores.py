"""Where the frontier of an interrupted crawl is: on one server, or on eight, one for each shard."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from gossamer.frontier.valkey.keys import shard_of
from gossamer.valkey.topology import slot_of
from gossamer_fakeweb.log import domain_of
from tests.servers.cluster_faults import move_slot, primary_of
from tests.servers.valkey import Server, cluster, standalone, wait_until

SHARDS = 8


@dataclass(frozen=True, slots=True)
class Store:
    """A frontier's servers."""

    address: str
    server: Server
    """The one that the trouble befalls."""
    shards: int
    spared: Callable[[str], bool]
    """Whether a host's requests live elsewhere."""


Stores = Callable[[], AbstractContextManager[Store]]


@contextlib.contextmanager
def one_server() -> Iterator[Store]:
    """Everything is on one server."""
    with standalone(tcp=True) as server:
        yield Store(server.address, server, 1, lambda _: False)


@contextlib.contextmanager
def one_of_eight() -> Iterator[Store]:
    """A cluster without replicas, each of whose nodes has one shard; one of them has the trouble."""
    options = {"cluster-require-full-coverage": "no", "cluster-node-timeout": "5000"}
    with cluster(primaries=SHARDS, options=options) as servers:
        for shard, node in enumerate(servers.primaries):
            slot = slot_of(f"{{{shard}}}")
            if primary_of(servers, slot) is not node:
                assert move_slot(servers, slot, node)
                wait_until(lambda slot=slot, node=node: primary_of(servers, slot) is node, "a slot to be moved")
        away = SHARDS - 1
        yield Store(
            servers.address,
            servers.primaries[away],
            SHARDS,
            lambda host: shard_of(domain_of(host), SHARDS) != away,
        )
