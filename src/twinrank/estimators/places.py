"""Where a model is: in a run's folder, or in one that `save` wrote."""

import shlex
from pathlib import Path

from twinrank.support.errors import InputError, explained

CONFIG, MODEL = "run.json", "model"
"""What a run's folder has: the file that says it is one, and the folder of its model."""


def model_place(folder: Path) -> Path:
    """The folder of the model itself."""
    with explained("read", folder):
        if not folder.exists():
            raise InputError(f"{folder} is not a model: there is no such folder")
        if not (folder / CONFIG).is_file():
            return folder
        if not (folder / MODEL).exists():
            raise InputError(
                f"the run in {folder} isn't complete; finish it with: "
                f"twinrank train --resume {shlex.quote(str(folder))}"
            )
        return folder / MODEL
