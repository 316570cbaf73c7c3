"""Shape annotations are checked while the tests run; property tests repeat exactly under CI."""

import os

from hypothesis import settings
from jaxtyping import install_import_hook

# Before any module with annotated functions is imported.
install_import_hook("twinrank.ranks.kernels.blocks", "beartype.beartype").__enter__()

# The first call of a compiled loop takes long: no deadlines.
settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
