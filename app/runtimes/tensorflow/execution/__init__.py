"""The execution of one signature: its variants (plain, frozen, inline, XLA), and a call with as few steps as possible.

For saved_model, and for variants, which chooses among them.
"""
