"""What is learnt of a URL pattern: samples, checks, and patterns that change."""

from gossamer.policy.render_learning import RenderKey, RenderLearner, RenderVerdict

KEY = RenderKey("crawl", "http://shop.test/thing/N", False)


def reasons(learner: RenderLearner, count: int, *, changed: bool) -> list[str]:
    """The reasons of the decisions on pages one after the other, all of which rendering changes or none."""
    found = []
    for _ in range(count):
        choice = learner.choose(KEY)
        assert choice is not None
        found.append(choice.why)
        if choice.render:
            learner.learn(KEY, changed=changed)
    return found


def test_a_page_that_gains_nothing_is_looked_at_twice_and_then_seldom() -> None:
    found = reasons(RenderLearner(), 2000, changed=False)
    assert found[:3] == ["sample", "sample", "no_change"]
    checks = [at for at, why in enumerate(found) if why == "check"]
    assert checks[:3] == [22, 63, 144]
    assert len(checks) < 10


def test_a_page_that_is_changed_is_rendered_from_then_on() -> None:
    assert reasons(RenderLearner(), 50, changed=True) == ["sample", *["change"] * 49]


def test_a_site_that_changes_is_noticed_in_both_directions() -> None:
    learner = RenderLearner()
    reasons(learner, 10, changed=True)
    assert reasons(learner, 7, changed=False) == [*["change"] * 5, *["no_change"] * 2]
    assert reasons(learner, 20, changed=True)[-2:] == ["check", "change"]


def test_only_two_pages_of_a_new_pattern_are_rendered_at_once() -> None:
    learner = RenderLearner()
    assert [learner.choose(KEY) is None for _ in range(4)] == [False, False, True, True]
    learner.give_up(KEY)
    assert learner.choose(KEY) is not None
    assert learner.choose(KEY) is None
    learner.learn(KEY, changed=True)
    choice = learner.choose(KEY)
    assert choice is not None
    assert choice.why == "change"


def test_the_memory_is_bounded() -> None:
    learner = RenderLearner(max_bytes=10_000)
    for number in range(1000):
        key = RenderKey("crawl", f"http://shop.test/{number:b}", False)
        learner.begin(key)
        learner.learn(key, changed=True)
    assert len(learner._known) < 30


def test_others_get_a_verdict_when_it_is_new() -> None:
    learner = RenderLearner()
    learner.adopt(KEY, None)
    assert [learner.learn(KEY, changed=False) for _ in range(3)] == [None, RenderVerdict(False, 20), None]
    assert learner.learn(KEY, changed=True) == RenderVerdict(True, 20)
    assert [learner.learn(KEY, changed=False) for _ in range(5)] == [None] * 4 + [RenderVerdict(False, 20)]


def test_a_process_renders_no_sample_of_what_others_know() -> None:
    for changed in (True, False):
        learner = RenderLearner()
        assert learner.asks_others(KEY)
        learner.adopt(KEY, RenderVerdict(changed, 40))
        assert not learner.asks_others(KEY)
        assert reasons(learner, 3, changed=changed) == ["change" if changed else "no_change"] * 3


def test_a_page_is_rendered_again_by_one_process_for_all() -> None:
    learner = RenderLearner()
    learner.adopt(KEY, RenderVerdict(False, 20))
    assert reasons(learner, 20, changed=False)[-1] == "no_change"
    assert learner.asks_others(KEY), "one is to be rendered again"
    learner.adopt(KEY, RenderVerdict(False, 40))
    assert reasons(learner, 40, changed=False) == ["no_change"] * 40
    learner.adopt(KEY, RenderVerdict(False, 40))
    assert reasons(learner, 1, changed=False) == ["check"], "no other has"


def test_what_others_have_noticed_holds_at_once() -> None:
    learner = RenderLearner()
    reasons(learner, 10, changed=True)
    learner.adopt(KEY, RenderVerdict(False, 20))
    assert reasons(learner, 2, changed=True) == ["no_change"] * 2


def test_an_interval_that_no_process_writes_neither_ends_the_checks_nor_makes_all_pages_one() -> None:
    for interval in (0, 10**8):
        learner = RenderLearner()
        learner.adopt(KEY, RenderVerdict(False, interval))
        assert 0 < reasons(learner, 2000, changed=False).count("check") < 10
