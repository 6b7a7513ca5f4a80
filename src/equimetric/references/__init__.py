"""The vectors that queries are compared with. References turn embeddings and labels into `Pairs`.

They own what a loss must not know: sample identity, learned proxies, class means of a support set, a memory of past
batches, the batches of other ranks. May import `pairs`, `geometry`, `ops` and `components`.
"""
