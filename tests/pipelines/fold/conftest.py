"""All of fold/ is tried by fold.c and by numpy."""

from tests.support.fold_cores import each_core  # noqa: F401 - pytest finds it
