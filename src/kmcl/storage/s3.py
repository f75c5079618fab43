"""Objects in S3, or in a store that speaks its protocol (MinIO, Ceph, R2), read whole or in part.

boto3 finds credentials, region and endpoint: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, ~/.aws/config and so on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Self

from kmcl.errors import InputError

SCHEME = "s3://"
CONNECTIONS = 32
"""Of one process: threads that read at the same time."""


@dataclass(frozen=True)
class S3Object:
    """One object.

    size:    in bytes
    version: its ETag; a read fails if the object has been replaced since. Empty to read what is there.
    """

    bucket: str
    key: str
    size: int = 0
    version: str = ""

    @classmethod
    def parse(cls, url: str) -> Self:
        bucket, _, key = url.removeprefix(SCHEME).partition("/")
        if not url.startswith(SCHEME) or not bucket:
            raise InputError(f"{url}: must be as in s3://BUCKET/PREFIX")
        return cls(bucket, key)

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.key.rpartition("/")[2]

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Its bytes, or `size` of them from `offset` on; fewer where it ends before."""
        asked = {} if size is None else {"Range": f"bytes={offset}-{offset + size - 1}"}
        if size == 0:
            return b""
        with _explaining(self):
            return bytes(self._get(asked)["Body"].read())

    @contextmanager
    def stream(self) -> Iterator[BinaryIO]:
        """Its bytes in order, without holding them all."""
        with _explaining(self):
            body = self._get({})["Body"]
            try:
                yield body
            finally:
                body.close()

    def _get(self, asked: dict[str, str]) -> Any:
        same = {"IfMatch": self.version} if self.version else {}
        return _client(os.getpid()).get_object(Bucket=self.bucket, Key=self.key, **asked, **same)


def list_objects(prefix: S3Object) -> Iterator[S3Object]:
    """The objects below a prefix, a folder or an object itself, by their keys; hidden ones are left out."""
    folder = prefix.key.rstrip("/")
    with _explaining(prefix):
        pages = _client(os.getpid()).get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=prefix.bucket, Prefix=folder):
            for found in page.get("Contents", ()):
                key = found["Key"]
                inside = not folder or key == folder or key.startswith(f"{folder}/")
                if inside and not key.endswith("/") and not key.rpartition("/")[2].startswith("."):
                    yield S3Object(prefix.bucket, key, int(found["Size"]), found["ETag"])


def s3_location(path: Path) -> S3Object | None:
    """The prefix that a location names; None for a path. Where a URL became a path, one slash is lost."""
    text = path.as_posix()
    return S3Object.parse(SCHEME + text.removeprefix("s3:").lstrip("/")) if text.startswith("s3:/") else None


@cache
def _client(process: int) -> Any:
    """A client for each process: one that was forked away does not share its connections."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise InputError("s3:// needs the package boto3: pip install 'kmcl[s3]'") from error
    settings = Config(max_pool_connections=CONNECTIONS, retries={"mode": "standard", "max_attempts": 5})
    return boto3.session.Session().client("s3", config=settings)


@contextmanager
def _explaining(what: S3Object) -> Iterator[None]:
    """InputError for what the store or the way to it refuses."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        # botocore and urllib3 raise families of their own, which need not be installed.
        if type(error).__module__.partition(".")[0] not in ("botocore", "boto3", "urllib3"):
            raise
        if "PreconditionFailed" in str(error):
            raise InputError(f"{what} has been replaced since it was opened") from error
        raise InputError(f"{what} cannot be read: {str(error) or type(error).__name__}") from error
