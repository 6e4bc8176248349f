"""How one signature is executed: in which form (plain, frozen, XLA), and a call with as few steps as possible.

For saved_model, and for variants, which chooses among the forms.
"""
