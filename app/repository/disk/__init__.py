"""What lies on the disk, and whether a version that lies there may be loaded now.

All that touches the models' storage, in processes that can be given up. For the repository and `ferry models`.
"""
