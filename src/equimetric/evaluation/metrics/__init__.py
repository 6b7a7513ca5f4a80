"""One file per metric family: names, collectors, score, and how it is resampled by class.

Every module here is found by discovery; a new metric is a new file with a function under `@metric(...)`.
"""
