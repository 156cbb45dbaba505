"""The driver: one step at a time, effects in order, inputs that effects feed wait their turn."""

from __future__ import annotations

import pytest

from quiesce.worker.driver import Driver


def step(state: int, event: int) -> tuple[int, list[str]]:
    return state + event, [f"first {event}", f"second {event}"]


def test_effects_are_carried_out_in_order_before_the_next_input() -> None:
    """An input fed from an effect waits until all effects of the step under way are carried out."""
    seen: list[str] = []

    def carry_out(effect: str) -> None:
        seen.append(effect)
        if effect == "first 1":
            driver.feed(10)

    driver = Driver(0, step, carry_out)
    driver.feed(1)
    assert seen == ["first 1", "second 1", "first 10", "second 10"]
    assert driver.state == 11


def test_a_failing_effect_does_not_wedge_the_driver() -> None:
    """An error reaches the caller, and later inputs are still stepped."""

    def carry_out(effect: str) -> None:
        if effect == "first 1":
            raise ValueError(effect)

    driver = Driver(0, step, carry_out)
    with pytest.raises(ValueError, match="first 1"):
        driver.feed(1)
    driver.feed(2)
    assert driver.state == 3
