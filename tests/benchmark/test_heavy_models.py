"""What heavy models are compared by; the runs are made up."""

from bench.heavy_models import beside_loops


def test_ratios_are_of_the_same_round_and_1_is_the_limit() -> None:
    runs = [{"rate": 80.0, "cpu_us": 12.5}, {"rate": 45.0, "cpu_us": 20.0}]
    loops = [{"rate": 100.0, "cpu_us": 10.0}, {"rate": 50.0, "cpu_us": 20.0}]
    assert beside_loops("m", runs, loops) == {"m_to_loops": [0.8, 0.9], "m_cpu_to_loops": [0.8, 1.0]}
