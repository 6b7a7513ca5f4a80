"""Probes: further measurements of the final runs of a study, one file each, registered by `@probe`.

A probe looks at finished runs and changes nothing of them; it opens the test classes once more, for models that are
final.
"""
