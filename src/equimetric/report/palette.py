"""The colours and markers of all figures."""

__all__ = ["MARKERS", "PALETTE"]

# Okabe and Ito (2008), distinct under every common colour-vision deficiency; without black and yellow, which vanish
# on a dark and on a light page.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "v", "P", "X", "p")
