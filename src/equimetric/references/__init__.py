"""Whom is a query compared with? References turn embeddings and labels into `Pairs`.

They own everything that a loss must not know: identity of samples, learned proxies, class means of a support set, a
memory of past batches, other processes' batches.
"""
