"""What `make docs` adds to the pages in docs/: pages made from the registries, from results and from docstrings."""
