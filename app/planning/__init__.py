"""How many servers a load needs: measured cost curves, the queue before a replica, the plan and what scaling follows.

Pure but for files of curves and prices; only `app/cli/` imports it. docs/scaling.md says how to compute with it.
"""
