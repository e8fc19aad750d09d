"""Copies of models of the hub: one folder with one commit of the files, whoever reads them."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import snapshot_download

from grpo_exp.errors import ConfigError

#: What a model is loaded from. Original checkpoints in other formats, which double the download, are left out.
_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")


def fetch_folder(path: str, revision: str | None, *, trust_remote_code: bool) -> Path:
    """Return the folder of a model, after downloading it where it is a hub id that is not in the cache.

    TRL loads the reference model by the name of the policy and without its revision; the name of a folder holds one
    commit, so that policy, reference and tokenizer are of the same.

    Args:
        path: A folder or a hub id.
        revision: Branch, tag or commit of a hub id; None is the newest.
        trust_remote_code: Fetch Python files, too.

    Raises:
        ConfigError: The hub has no such model, cannot be reached, or does not let us have it.
    """
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    code = ("*.py",) if trust_remote_code else ()
    try:
        found = Path(snapshot_download(path, revision=revision, allow_patterns=[*_FILES, *code]))
        if not any(found.glob("*.safetensors")):  # old models
            found = Path(snapshot_download(path, revision=revision, allow_patterns=[*_FILES, *code, "*.bin"]))
    except Exception as error:  # of the network, of the hub, of the cache: dozens of classes
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        at = "" if revision is None else f" at {revision}"
        raise ConfigError(
            f"model.path={path}{at}: cannot be had from the hub ({why}); give the folder of a copy, or an id that "
            "exists; models behind an agreement need HF_TOKEN, and a machine without internet a filled cache "
            "(HF_HOME). A run goes on with the commit that it began with; resume=never starts another beside it with "
            "what there is now"
        ) from error
    return found
