"""The proof, from the graph of a signature alone, that its rows do not see each other: `prove_rows` in proof.py.

The folder `execution` and `saved_model/session_model.py` call it; it loads no weights and makes no calls.
"""
