"""`from equimetric.selections import semihard`: the functions of `em.selections` as a module of that name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from equimetric.constructors.selections import *  # noqa: F403
else:
    from equimetric.constructors.selections import __dir__, __getattr__  # noqa: F401
