"""What pipelines gain and cost, in ratios of one run on one machine: docs/benchmark.md, "Pipelines"."""
