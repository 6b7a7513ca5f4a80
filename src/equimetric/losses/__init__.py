"""One file per loss. A loss knows `Pairs` (or triplets of them), computes with `ops`, and knows nothing else.

To add one, put a file here with a function or module under the `@loss` decorator: it is found, listed, documented
and put through the contract tests without another line.
"""
