"""A frontier whose server lost its data is recognised: by every process, on every shard, once for each loss."""

import random

from gossamer.frontier.valkey import ValkeyFrontier
from tests.servers.valkey import Server

from .stage import Stage


async def empty(stage: Stage, shard: int) -> None:
    """Delete the keys of one shard."""
    base = f"{stage.prefix}:{{{shard}}}:"
    keys = [key for key in await stage.keys() if key.startswith(base)]
    await stage.connections[0].command(base, "DEL", *keys)


async def test_every_process_notices_each_emptied_shard_once(stage: Stage) -> None:
    first, second = await stage.frontier(), await stage.frontier()
    shard = random.randrange(stage.shards)
    for losses in (1, 2):
        await empty(stage, shard)
        data_epoch = first.data_epoch
        for _ in range(2):
            await first.check_data()
        assert first.lost_shards == losses
        assert first.data_epoch > data_epoch, "what this process remembered of the shard holds no longer"
        await second.check_data()
        assert second.lost_shards == losses, "also where another process opened the shard again"
    assert (await stage.frontier()).lost_shards == 0
    await leave(stage)


async def test_housekeeping_notices_it_too(stage: Stage) -> None:
    """Services and workers look at the shards for other reasons anyway."""
    frontier = await stage.frontier()
    await empty(stage, 0)
    await frontier.maintain()
    await frontier.maintain()
    assert frontier.lost_shards == 1
    await leave(stage)


async def test_all_processes_go_on_with_one_secret(stage: Stage) -> None:
    """Whoever opens the empty frontier first decides: a process that knows the old secret, or a new one."""
    first, second = await stage.frontier(), await stage.frontier()
    secret = first.secret
    await empty(stage, 0)
    await first.check_data()
    await second.check_data()
    assert {first.secret, second.secret, (await stage.frontier()).secret} == {secret}
    await empty(stage, 0)
    stranger = await stage.frontier()
    await first.check_data()
    await second.check_data()
    assert first.secret == second.secret == stranger.secret != secret
    await leave(stage)


async def test_a_restarted_server_with_its_data_is_no_loss(one_server: Server) -> None:
    """As is a backup that was put back: what tells a frontier from another one is in it."""
    stage = Stage(one_server, 3)
    frontier = await stage.frontier()
    await stage.kill_server()
    await retried(frontier)
    assert frontier.lost_shards == 0
    await leave(stage)


async def retried(frontier: ValkeyFrontier) -> None:
    """The first call after a restart finds its connection ended."""
    try:
        await frontier.check_data()
    except Exception:
        await frontier.check_data()


async def leave(stage: Stage) -> None:
    for frontier in stage.frontiers:
        await frontier.close()
