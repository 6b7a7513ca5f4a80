"""One file per selection (the literature's miners): which of the pairs count? A selection knows `Pairs` only.

A selection narrows the masks, or, where a negative is chosen given a positive, returns triplets. Choosing is not
differentiated: selections run without gradient.
"""
