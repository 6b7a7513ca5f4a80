"""Every component as a function with typed options, one module for each kind.

    from equimetric import losses, selections

    losses.triplet(margin=0.1, selection=selections.semihard())

Each module reads its registry, so components of plug-ins are there too; the stubs beside the modules, which editors and
type checkers read, are generated from the registries by `python -m equimetric.constructors.stubs`. May import every
room up to `learners`.
"""
