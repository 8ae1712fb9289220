"""Which kind of folder is at a path or URL; the file sink and whoever shows its files ask."""

from __future__ import annotations

from penstock.connectors.files.folders import Folder, LocalFolder
from penstock.connectors.files.object_store import is_url


def open_folder(path: str) -> Folder:
    """The folder at an absolute path or a URL; nothing is read or written yet."""
    if is_url(path):
        from penstock.connectors.files.bucket_folder import BucketFolder

        return BucketFolder(path)
    return LocalFolder(path)
