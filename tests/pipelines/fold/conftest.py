"""All of fold/ is tried by fold.c and by numpy."""

from tests.pipelines.fold.fold_cores import each_core  # noqa: F401 - pytest finds it
