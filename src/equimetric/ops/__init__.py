"""What a loss or a selection may compute with; the kernels behind it know products, chunks of rows and gradients."""
