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
