"""The simulator behind `bench.simulate`: arrivals, costs and policies on Ferry's batcher, under a clock that jumps."""
