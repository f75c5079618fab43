"""Models on the Hugging Face hub: recognising names, downloading and publishing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from huggingface_hub import constants, hf_hub_download

from kmcl.encoders.weights import hub_is_reachable
from kmcl.errors import InputError
from kmcl.models.folder import DESCRIPTION_FILE, WEIGHTS_FILE

if TYPE_CHECKING:
    from kmcl.serving.predictor import Predictor

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_id(text: str) -> bool:
    """Whether a text has the form owner/name."""
    return _HUB_ID.fullmatch(text) is not None


def download(
    hub_id: str,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    force_download: bool = False,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Path:
    """Download the two files of a model, unless they are cached, and return their folder.

    The arguments are those of `huggingface_hub.hf_hub_download`. With HF_HUB_OFFLINE set, only the cache is
    used.
    """
    if not constants.HF_HUB_OFFLINE and not local_files_only and not hub_is_reachable():
        local_files_only = True  # the hub's client would spend most of a minute on retries
    file = ""
    for name in (DESCRIPTION_FILE, WEIGHTS_FILE):
        try:
            file = hf_hub_download(
                hub_id,
                name,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
            )
        except Exception as error:
            # The hub's own errors, ValueErrors of its validation, and errors of its HTTP client.
            raise InputError(
                f"{hub_id}: there is no such folder, and no such model could be downloaded from the hub: "
                f"{_first_line(error)}"
            ) from error
        revision = Path(file).parent.name  # both files of one commit, even if another is published meanwhile
    return Path(file).parent


def push(predictor: Predictor, hub_id: str, *, private: bool = False, message: str | None = None) -> str:
    """Publish a model with its card; returns the URL of the commit. Needs a token of the hub."""
    if not is_hub_id(hub_id):
        raise InputError(f"the name on the hub must be owner/name; got {hub_id!r}")
    try:
        address: str = predictor.push_to_hub(
            hub_id, private=private, commit_message=message or f"Add the model {hub_id}"
        )
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{hub_id}: could not be published: {_first_line(error)}") from error
    return str(address)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
