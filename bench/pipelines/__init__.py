"""What pipelines gain and cost, in ratios of one run on one machine: `python -m bench.pipelines` (docs/benchmark.md)."""
