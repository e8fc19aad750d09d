"""Tables of the hub, or copies of them on this machine, read by the library `datasets`."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_exp.data.columns import check_columns, to_prompt_row, wanted_columns
from grpo_exp.data.prompts import PromptData, PromptRow
from grpo_exp.data.row_cache import cache_folder
from grpo_exp.data.splits import SourceRows, select, split
from grpo_exp.errors import DataError
from grpo_exp.hub_cache import COMMIT
from grpo_exp.settings.dataset import HubDataset

if TYPE_CHECKING:
    from datasets import Dataset

REVISION, EVAL_REVISION = "dataset.revision", "dataset.eval_revision"
#: How files of one table are read, by their ending.
_READERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".arrow": "arrow"}


@dataclass(frozen=True, slots=True)
class Table:
    """One table that has been opened, and how the user named it."""

    rows: Dataset
    source: str
    setting: str

    @property
    def fingerprint(self) -> str:
        """What `datasets` knows the table's content by."""
        return self.rows._fingerprint

    @property
    def commit(self) -> str | None:
        """Commit of the hub that the rows are of: `datasets` names its copy by it. None for local files and folders."""
        if Path(self.source).expanduser().exists():
            return None
        folders = {Path(file["filename"]).parent.name for file in self.rows.cache_files}
        commits = [name for name in folders if COMMIT.fullmatch(name)]
        return commits[0] if len(commits) == 1 else None


@dataclass(frozen=True, slots=True)
class Tables:
    """The training rows, and the held-out ones where they are a table of their own."""

    train: Table
    evaluation: Table | None

    def commits(self) -> dict[str, str]:
        """Return the commits that the rows are of, by the setting that asks for them."""
        found = {REVISION: self.train.commit}
        if self.evaluation is not None and self.evaluation.source != self.train.source:
            found[EVAL_REVISION] = self.evaluation.commit
        return {name: commit for name, commit in found.items() if commit is not None}


def open_tables(settings: HubDataset) -> Tables:
    """Find and open the tables; nothing is read yet.

    Raises:
        DataError: A table cannot be had, or lacks a column.
    """
    assert settings.path is not None  # HubDataset refuses a null path
    train = _open("path", settings.path, settings.config_name, settings.revision, settings.split)
    evaluation = None
    if settings.eval_split is not None:
        is_other = settings.eval_path is not None
        if not is_other and Path(settings.path).expanduser().is_file():
            raise DataError(
                f"dataset.eval_split={settings.eval_split}: dataset.path={settings.path} is one file without splits; "
                "give dataset.eval_path=FILE, or dataset.eval_split=null to hold some of its rows out"
            )
        evaluation = _open(
            "eval_path" if is_other else "path",
            settings.eval_path or settings.path,
            settings.eval_config_name if is_other else settings.eval_config_name or settings.config_name,
            settings.eval_revision if is_other else settings.eval_revision or settings.revision,
            settings.eval_split,
        )
    for table in filter(None, (train, evaluation)):
        if len(table.rows) == 0:
            raise DataError(f"dataset.{table.setting}={table.source}: holds no row; name another split or file")
        check_columns(table.source, table.rows.column_names, table.rows[0], settings)
    return Tables(train, evaluation)


def map_tables(tables: Tables, settings: HubDataset) -> PromptData:
    """Read the tables; rows that cannot be used are counted by reason.

    Raises:
        DataError: None of the rows of a table can be used.
    """
    train = select(_usable_rows(tables.train, settings), settings)
    evaluation = None if tables.evaluation is None else _usable_rows(tables.evaluation, settings)
    return split(train, evaluation, settings)


def open_table(setting: str, source: str, config_name: str | None, revision: str | None, split: str) -> Dataset:
    """Open one table of the hub or of this machine.

    Raises:
        DataError: It cannot be had.
    """
    import datasets

    datasets.disable_progress_bars()
    path = Path(source).expanduser()
    try:
        if path.is_file():
            reader = _READERS.get(path.suffix.lower())
            if reader is None:
                raise DataError(
                    f"dataset.{setting}={source}: is no kind of file that can be read; use one of {', '.join(_READERS)}"
                )
            return _read_file(path, reader)
        if (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file():
            saved: Any = datasets.load_from_disk(str(path))
            return saved if isinstance(saved, datasets.Dataset) else saved[split]
        if path.is_dir():
            return datasets.load_dataset(str(path), config_name, split=split, cache_dir=str(cache_folder()))
        return datasets.load_dataset(source, config_name, revision=revision, split=split)
    except DataError:
        raise
    except Exception as error:  # of the network, of the hub, of files: dozens of classes
        cause = error.__cause__ or error  # of a file that is broken, the line is said there
        why = f"{type(cause).__name__}: {cause}".splitlines()[0]
        raise DataError(
            f"dataset.{setting}={source}: split {split!r} cannot be loaded ({why}); give an id that exists on the "
            "hub, or the file or folder of a copy; a machine without internet needs the latter, or a filled cache "
            "(HF_HOME)"
        ) from error


def _check_plain(table: Table, row: PromptRow) -> None:
    """Refuse columns with values that are no JSON, such as times and images: nothing hands those to a reward.

    Raises:
        DataError: A column holds one.
    """
    for name, value in row.columns.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise DataError(
                f"dataset.extra_columns={name}: {table.source} holds values there that are neither text nor numbers "
                f"({error}), and rewards are handed JSON; write the column as text, or leave it out"
            ) from error


def _open(setting: str, source: str, config_name: str | None, revision: str | None, split: str) -> Table:
    table = Table(open_table(setting, source, config_name, revision, split), source, setting)
    if revision is not None and COMMIT.fullmatch(revision) and table.commit not in {None, revision}:
        raise DataError(
            f"dataset.{setting}={source}: commit {revision} is wanted and the copy here is of {table.commit}: without "
            "the hub the library datasets takes its newest copy, whatever it is asked for; connect to the hub, or give "
            "a file or folder with that commit"
        )
    return table


def _read_file(path: Path, reader: str) -> Dataset:
    """Read a file and know it by its content: `datasets` knows it by its time, which archives set to an old one."""
    import datasets

    with path.open("rb") as stream:
        content = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    folder = cache_folder() / "files" / content
    rows = datasets.load_dataset(reader, data_files=str(path), split="train", cache_dir=str(folder))
    rows._fingerprint = f"{content}{rows._fingerprint[:16]}"
    return rows


def _usable_rows(table: Table, settings: HubDataset) -> SourceRows:
    found = SourceRows()
    for row in table.rows.select_columns(wanted_columns(settings)):
        result = to_prompt_row(row, settings)  # type: ignore[arg-type]
        if not isinstance(result, str):
            _check_plain(table, result)
        if isinstance(result, str):
            found.dropped[result] += 1
        else:
            found.rows.append(result)
    if not found.rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in found.dropped.items())
        raise DataError(
            f"dataset.{table.setting}={table.source}: none of its {len(table.rows)} rows can be used ({reasons}); "
            "correct the columns or dataset.target_format"
        )
    return found
