"""The batching core: policy, queue, lanes, batches, padding (pure), and the batcher, the only file that waits."""
