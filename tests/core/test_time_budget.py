from app.core.time_budget import TimeBudget


def test_a_step_is_allowed_while_it_would_end_in_time() -> None:
    now = 100.0
    budget = TimeBudget(2.0, lambda: now)
    assert budget.allows()
    assert budget.allows(1.9)
    assert not budget.allows(2.0)
    now = 101.5
    assert budget.allows(0.4)
    assert not budget.allows(0.5)
    now = 103.0
    assert not budget.allows()


def test_no_time_allows_nothing() -> None:
    assert not TimeBudget(0.0).allows()


def test_waiting_at_the_gate_is_not_counted() -> None:
    now = 0.0

    def gate() -> bool:
        nonlocal now
        now += 10.0
        return True

    budget = TimeBudget(2.0, lambda: now, gate)
    assert budget.allows(1.9)
    assert budget.part(0.5).allows(0.9)
    assert budget.left_s == 2.0
    now += 1.5
    assert budget.left_s == 0.5
    assert not budget.allows(0.6)


def test_what_is_not_wanted_any_more_is_cancelled_for_all_parts() -> None:
    wanted = True
    budget = TimeBudget(2.0, lambda: 0.0, lambda: wanted)
    part = budget.part(0.5)
    assert part.allows()
    wanted = False
    assert not part.allows()
    assert part.cancelled
    assert budget.cancelled
    wanted = True
    assert not budget.allows()


def test_a_part_is_a_share_of_what_is_left_and_keeps_the_whole_for_the_cache() -> None:
    now = 0.0
    budget = TimeBudget(3.0, lambda: now, left_s=2.0)
    part = budget.part(0.5)
    assert (part.seconds, part.left_s) == (3.0, 1.0)
    now = 1.5
    assert not part.allows()
    assert budget.allows()


def test_a_budget_tells_whether_a_larger_one_would_have_allowed_more() -> None:
    budget = TimeBudget(2.0, lambda: 0.0, longest_s=5.0)
    assert budget.allows(1.0)
    assert not budget.allows(6.0), "no budget allows it"
    assert not budget.short
    assert not budget.part(0.5).part(0.5).allows(1.0)
    assert budget.short


def test_what_is_not_wanted_any_more_is_not_for_lack_of_time() -> None:
    budget = TimeBudget(2.0, lambda: 0.0, lambda: False)
    assert not budget.allows(3.0)
    assert not budget.short


def test_no_step_is_longer_than_the_longest() -> None:
    budget = TimeBudget(20.0, lambda: 0.0, longest_s=5.0)
    assert budget.allows(5.0)
    assert not budget.allows(5.1)
    assert not budget.part(0.5).allows(5.1)
