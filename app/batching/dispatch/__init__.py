"""The dispatch of batches: they are started, executed and answered, from a free device to the reply of each request.

Only app/batching imports it, by batcher.py, acceptance.py and steps.py.
"""
