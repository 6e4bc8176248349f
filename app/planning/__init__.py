"""The plan of servers for a load: measured cost curves, the queue before a replica, the plan, and autoscaling.

Pure but for files of curves and prices; only `app/cli/` imports it. docs/scaling.md says how to compute with it.
"""
