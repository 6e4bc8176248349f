"""How one signature is executed: its variants (plain, frozen, XLA), and a call with as few steps as possible.

For saved_model, and for variants, which chooses among them.
"""
