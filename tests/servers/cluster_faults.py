"""What happens to the nodes of a cluster: they die, hang, come back, and their slots move."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

import hiredis

from tests.servers.valkey import Cluster, Server, wait_until

_NEVER = (OSError, hiredis.ReplyError)


@dataclass(frozen=True)
class Member:
    """A node as one of the others sees it."""

    name: str
    port: int
    flags: frozenset[str]
    epoch: int
    slots: tuple[range, ...]


def members(node: Server) -> list[Member]:
    """What this node knows of all of them. Raises OSError where it does not answer."""
    found = []
    for line in node.command("CLUSTER", "NODES").decode().splitlines():
        name, where, flags, _, _, _, epoch, _, *rest = line.split()
        port = int(where.split("@")[0].rpartition(":")[2])
        slots = tuple(
            range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1) for part in rest if not part.startswith("[")
        )
        found.append(Member(name, port, frozenset(flags.split(",")), int(epoch), slots))
    return found


def answers(node: Server) -> bool:
    """Whether it runs and is not stopped by a signal."""
    try:
        with open(f"/proc/{node.pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in ("T", "t", "Z", "X")
    except (OSError, AssertionError):
        return False


def primary_of(cluster: Cluster, slot: int) -> Server:
    """The node that serves this slot by the highest epoch that anybody knows of; it may be dead."""
    best: tuple[int, int] = (-1, 0)
    for node in filter(answers, cluster.nodes):
        with contextlib.suppress(*_NEVER):
            for member in members(node):
                if any(slot in part for part in member.slots):
                    best = max(best, (member.epoch, member.port))
    return by_port(cluster, best[1])


def by_port(cluster: Cluster, port: int) -> Server:
    return next(node for node in cluster.nodes if node.port == port)


def primaries(cluster: Cluster) -> list[Server]:
    """Who serves slots now, in their order."""
    return list(dict.fromkeys(primary_of(cluster, slot) for slot in range(0, 16384, 256)))


def wait_replaced(cluster: Cluster, old: Server, slot: int) -> Server:
    """Until another node serves this slot, and all that answer say that the cluster is whole; which one."""
    wait_until(lambda: primary_of(cluster, slot) is not old, "a replica to take over")
    wait_whole(cluster)
    return primary_of(cluster, slot)


def wait_whole(cluster: Cluster) -> None:
    """Until every node that answers says that all slots are served."""

    def whole() -> bool:
        try:
            return all(
                b"cluster_state:ok" in node.command("CLUSTER", "INFO") for node in cluster.nodes if answers(node)
            )
        except _NEVER:
            return False

    wait_until(whole, "the cluster to be whole")


def wait_mirrored(cluster: Cluster) -> None:
    """Until every primary has a replica that follows it."""
    wait_whole(cluster)
    wait_until(
        lambda: all("state=online" in node.info("replication").get("slave0", "") for node in primaries(cluster)),
        "every primary to have a replica",
    )


def slots_of(node: Server) -> list[range]:
    return [part for member in members(node) if "myself" in member.flags for part in member.slots]


def replica_of(cluster: Cluster, primary: Server) -> Server | None:
    """A node that follows it now, in its own view."""
    for node in filter(answers, cluster.nodes):
        facts = node.info("replication")
        if facts["role"] == "slave" and int(facts["master_port"]) == primary.port:
            return node
    return None


def freeze(node: Server) -> None:
    """SIGSTOP: it hangs, and its connections with it. Return when it does: a node that is about to stop would still be
    asked, and not answer."""
    os.kill(node.pid, signal.SIGSTOP)
    wait_until(lambda: not answers(node), "a node to stop")


@contextlib.contextmanager
def paused(node: Server) -> Iterator[None]:
    """Frozen, until the end of the block."""
    freeze(node)
    try:
        yield
    finally:
        os.kill(node.pid, signal.SIGCONT)


@contextlib.contextmanager
def deaf(node: Server) -> Iterator[None]:
    """It hears nothing of the other nodes, and still serves clients until it notices that."""
    node.command("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -2)
    try:
        yield
    finally:
        node.command("DEBUG", "DROP-CLUSTER-PACKET-FILTER", -1)


def move_slot(cluster: Cluster, slot: int, target: Server) -> bool:
    """Valkey 9's atomic migration. False: it did not come about (a node failed over meanwhile)."""
    source = primary_of(cluster, slot)
    if source is target:
        return True
    name = target.command("CLUSTER", "MYID")
    try:
        source.command("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", name)
    except hiredis.ReplyError:
        return False
    return True
