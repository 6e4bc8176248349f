"""Makes of a SavedModel another one whose large dense layers are split over several devices (`ferry shard`).

Nothing here runs while Ferry serves: what is made is an ordinary SavedModel that names its devices.
"""
