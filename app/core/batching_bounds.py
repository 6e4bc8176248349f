"""The bounds of batching options: settings, PATCH bodies and BatchingParameters files share this one table.

They are far beyond what makes sense, so that they only catch a number in the wrong unit or with a slip of the hand. All
are chosen.
"""

from __future__ import annotations

#: Rows in one call.
MOST_BATCH_ROWS = 1 << 20

#: Sizes that batches are padded to: a model is called at each of them before it serves at that size.
MOST_BATCH_SIZES = 1024

#: Milliseconds that an idle device waits for more requests. A client gives up after 30 s by default.
MOST_DELAY_MS = 10_000

#: Milliseconds that a call and the one before it may take.
MOST_TARGET_MS = 600_000

#: Milliseconds from the arrival of a request to its answer: a day.
MOST_TIMEOUT_MS = 86_400_000

#: Rows that wait in the queue.
MOST_QUEUE_ROWS = 1 << 30

#: Batches that one device computes at the same time. Each has a thread of its own.
MOST_BATCHES_IN_FLIGHT = 1024

#: Weights of models. Times divided by them stay exact.
LEAST_WEIGHT, MOST_WEIGHT = 0.001, 1000.0
