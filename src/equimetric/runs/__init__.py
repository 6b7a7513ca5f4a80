"""A run: its configuration, key, folder and typed result, the model in it, and the one way to evaluate it.

May use data, backbones, batches, learners, evaluation and calibration; knows nothing of the training loop or studies.
"""
