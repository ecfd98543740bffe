"""What a run has done so far: a folder of files that are there whole or not at all.

A kill at any moment loses the file being written and nothing else. The manifest says from what the
files were made, so that a run with other inputs does not go on with them.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tokenrouter.errors import ConfigError, MeasurementError

MANIFEST = "manifest.json"
FULL_BYTES = 1 << 20
"""A disk with less free space is full."""
Arrays = dict[str, torch.Tensor]


class Store:
    """The folder of a run. ``inputs`` are what everything in it is made from, by name.

    Raises:
        ConfigError: it holds what was made from other inputs, or cannot be written to.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, Any]) -> None:
        self.folder = folder
        manifest = folder / MANIFEST
        wanted = json.loads(json.dumps(inputs))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            found = json.loads(manifest.read_text()) if manifest.exists() else None
        except (OSError, ValueError) as error:
            raise ConfigError(f"--out: {folder}: cannot be used: {error}") from error
        if found is None:
            self.write_text(MANIFEST, json.dumps(wanted, indent=2))
        elif changed := [name for name in wanted if found.get(name) != wanted[name]]:
            raise ConfigError(
                f"--out: {folder} is of a run with other {', '.join(changed)}; "
                "give what was given then, or another folder"
            )

    def path(self, name: str) -> Path:
        """Where ``name`` (with ``/`` for folders) is or will be."""
        return self.folder / name

    def has(self, name: str) -> bool:
        """Whether ``name`` was written, and so is whole."""
        return self.path(name).exists()

    def arrays(self, name: str) -> Arrays:
        """What `write_arrays` wrote."""
        return dict(load_file(self.path(name)))

    def write_arrays(self, name: str, arrays: Arrays) -> None:
        """Write tensors of the CPU."""
        self.write(name, lambda path: save_file(arrays, path))

    def write_text(self, name: str, text: str) -> None:
        """Write a text."""
        self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Let ``write`` write a file elsewhere, then put it in its place.

        Raises:
            MeasurementError: it cannot be written; what was written before stays.
        """
        path = self.path(name)
        partial = path.with_name(f"partial.{path.name}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(partial)
            with partial.open("rb+") as file:
                os.fsync(file.fileno())
            partial.replace(path)
        except Exception as error:
            cause = _cause(error, self.folder)
            partial.unlink(missing_ok=True)
            if cause is None:
                raise
            raise MeasurementError(
                f"{path}: cannot be written: {cause}; once it can be, the same command goes on "
                "where this one stopped"
            ) from error


def _cause(error: Exception, folder: Path) -> str | None:
    """Why the system refused a file, as the libraries that write tensors tell it, or None.

    torch does not: what it raises on a full disk speaks of positions in the file.
    """
    if isinstance(error, OSError):
        return error.strerror or str(error)
    text = str(error)
    names = (os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO))
    found = next((name for name in names if name in text), None)
    full = isinstance(error, RuntimeError) and shutil.disk_usage(folder).free < FULL_BYTES
    return os.strerror(errno.ENOSPC) if full else found
