"""A dataset from rows of text: the targets and the splits. For files, DataFrames and feature vectors.

Optional columns `split` and `group` (also `patient`, `patient_id`: images of one group are never in two
splits); every other column is a label, unless a column `labels` or several columns `label_1`, `label_2`, ...
have their names. Without a split column the rows are split by iterative stratification; with one that has no
validation rows, these are taken from the training rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from kmcl.data.column_names import (
    GROUP_COLUMNS,
    NAME_COLUMNS,
    SOURCE_COLUMNS,
    SPLIT_COLUMNS,
    UNKNOWN_COLUMNS,
    usual_column,
)
from kmcl.data.dataset import Dataset, ImageStore, Split
from kmcl.data.label_parents import contradictions, read_parents, without_descendants
from kmcl.data.readers.column_advice import column_advice
from kmcl.data.readers.name_columns import numbered_columns, targets_from_names
from kmcl.data.readers.options import DrawOptions, Names, folder_of
from kmcl.data.readers.partial_labels import apply_sources, apply_unknown_names, read_sources
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.split_names import SPLIT_SPELLINGS, given_splits
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import LabelTargets, Unlisted, targets_from_columns
from kmcl.data.selection import select
from kmcl.data.splitting import draw_splits, finish_splits
from kmcl.data.target_pairs import has_any
from kmcl.errors import InputError, suggest


class LabelColumnOptions(DrawOptions):
    """Options of anything with columns of labels.

    split_column:   the column with train, val or test; default `split` if there is one.
    group_column:   the column of patients or other groups; default `group` or `patient` if there is one.
    label_columns:  the 0/1 columns to use, in order; default all remaining columns.
    ignore_columns: columns that are not labels.
    labels_column:  the column of label names, or several; default `labels`, or `label_1`, `label_2` etc.
    label_names:    with such a column: the labels in order; default all that occur, alphabetically.
    separator:      the separator of label names; default "|", ";" or ",", whichever occurs. Lists need none.
    unlisted:       what a label is that a row does not name, or whose cell is blank: `absent` or `unknown`;
                    default absent for names and where all cells are marks (x), unknown for 0/1 columns.
    unknown_column: the column with the names of labels that were not annotated; default `unknown_labels`.
    sources:        a YAML file with the labels that each source annotates; its other labels are unknown.
    source_column:  with `sources`: the column with the source of each row; default `source`.
    """

    split_column: str | None = None
    group_column: str | None = None
    label_columns: Names | None = None
    ignore_columns: Names = ()
    labels_column: Names | None = None
    label_names: Names | None = None
    separator: str | None = Field(default=None, min_length=1)
    unlisted: Unlisted | None = None
    unknown_column: str | None = None
    sources: dict[str, Names] | Path | None = None
    source_column: str | None = None


def labelled_dataset(
    table: TableRows,
    options: LabelColumnOptions,
    labelled: LabelTargets,
    images: ImageStore,
    *,
    name: str,
    notes: Sequence[str] = (),
) -> Dataset:
    """The dataset of a table's rows, whose images and targets are these. It takes over the targets."""
    split_column, group_column = _split_and_group(table, options)
    groups = np.array(table.column(group_column)) if group_column else None
    lines = np.array(table.lines, dtype=np.int64) if table.has_lines else None
    everything = Split(images, labelled.targets, groups=groups, lines=lines)
    names = None if split_column is None else _split_names(table, split_column)
    if table.refused:
        kept = table.usable_rows()
        everything = select(everything, kept)
        names = None if names is None else [names[row] for row in kept]
    in_place = everything.targets.flags.writeable
    if names is not None:
        splits = given_splits(everything, names, in_place=in_place)
    else:
        splits = draw_splits(everything, options, in_place=in_place)
    splits = finish_splits(splits, options, in_place=in_place)
    return Dataset(name, labelled.labels, splits, (*labelled.notes, *notes))


def read_targets(
    table: TableRows,
    options: LabelColumnOptions,
    others: set[str],
    given: LabelTargets | None = None,
) -> LabelTargets:
    """The targets of a table's rows.

    others: columns that are known not to be labels
    given:  targets from elsewhere, which columns of the table may complete
    """
    labelled = _read_targets(table, options, {*others, *_split_and_group(table, options)}, given)
    if not has_any(labelled.targets):
        noun = "image" if table.kind == "table" else "row"
        raise InputError(f"{table.title}: no {noun} carries any label, every target is 0 or unknown")
    return labelled


def _split_and_group(table: TableRows, options: LabelColumnOptions) -> tuple[str | None, str | None]:
    return (
        find_column(table, options.split_column, SPLIT_COLUMNS, "split_column", options.label_columns),
        find_column(table, options.group_column, GROUP_COLUMNS, "group_column", options.label_columns),
    )


def find_column(
    table: TableRows, chosen: str | None, usual: Sequence[str], option: str, labels: Names | None = None
) -> str | None:
    """The chosen column, or the one with a usual name that is not among `labels`; None if there is none."""
    if chosen is not None:
        _require_columns(table, [chosen], option)
        return chosen
    return usual_column([name for name in table.header if name not in (labels or ())], usual)


def _require_columns(table: TableRows, names: Iterable[str], option: str) -> None:
    for name in names:
        if name not in table.header:
            raise InputError(
                f"{table.header_title}: no column {name!r} (asked for by {option})"
                f"{suggest(name, table.header)}; there are {', '.join(table.header)}"
            )


def _read_targets(
    table: TableRows, options: LabelColumnOptions, others: set[str | None], given: LabelTargets | None
) -> LabelTargets:
    _require_columns(table, options.ignore_columns, "ignore_columns")
    labels = options.label_columns
    unknown_column = find_column(table, options.unknown_column, UNKNOWN_COLUMNS, "unknown_column", labels)
    source_column = None
    if options.sources is not None:
        source_column = find_column(table, options.source_column, SOURCE_COLUMNS, "source_column")
        if source_column is None:
            raise InputError(f"{table.header_title}: no column 'source'; name it with source_column=...")
    others = others | {unknown_column, source_column, *options.ignore_columns}
    if given is None:
        labelled = _read_labels(table, options, others)
    else:
        labelled = _checked_by_parents(table, given, options)
    if unknown_column is not None:
        labelled = apply_unknown_names(table, labelled, unknown_column)
    if source_column is not None and options.sources is not None:
        sources = read_sources(options.sources, folder_of(table.path))
        labelled = apply_sources(table, labelled, source_column, sources)
    return labelled


def _read_labels(table: TableRows, options: LabelColumnOptions, others: set[str | None]) -> LabelTargets:
    if options.label_columns:
        _require_columns(table, options.label_columns, "label_columns")
        labelled = targets_from_columns(table, options.label_columns, options.unlisted)
        return _checked_by_parents(table, labelled, options)
    if columns := _name_columns(table, options):
        return targets_from_names(table, columns, options.separator, options.label_names, options.unlisted)
    columns = tuple(name for name in table.header if name not in others)
    if not columns:
        raise InputError(f"{table.header_title}: no label column among {', '.join(table.header)}")
    labelled = targets_from_columns(
        table,
        columns,
        options.unlisted,
        lambda problems: column_advice(table, problems, options.ignore_columns),
    )
    return _checked_by_parents(table, labelled, options)


def _checked_by_parents(
    table: TableRows, labelled: LabelTargets, options: LabelColumnOptions
) -> LabelTargets:
    """A 0 in a cell says that a label is absent, which must not contradict what other labels imply.

    Names say only what is present: there `with_parents` fills in what they imply.
    """
    if options.parents is None:
        return labelled
    parents = read_parents(options.parents, folder_of(table.path))
    problems = [
        RowProblem(
            table.lines[found.row],
            f"label {found.label!r} is present and {found.ancestor!r}, which it implies, is absent",
            f"label {found.label!r} is present and {found.ancestor!r}, which it implies, is absent",
        )
        for found in contradictions(labelled.targets, labelled.labels, parents)
    ]
    table.refuse(problems)
    return replace(labelled, targets=without_descendants(labelled.targets, labelled.labels, parents))


def _name_columns(table: TableRows, options: LabelColumnOptions) -> tuple[str, ...]:
    if options.labels_column:
        _require_columns(table, options.labels_column, "labels_column")
        return options.labels_column
    usual = find_column(table, None, NAME_COLUMNS, "labels_column")
    return numbered_columns(table) if usual is None else (usual,)


def _split_names(table: TableRows, column: str) -> list[str]:
    names = []
    problems = []
    for cell, line in zip(table.column(column), table.lines, strict=True):
        name = SPLIT_SPELLINGS.get(cell.lower())
        if name is None:
            near = suggest(cell, SPLIT_SPELLINGS)
            message = f"column {column!r} holds {shown_value(cell)}{near}, expected train, val or test"
            kind = f"column {column!r} holds values other than train, val and test"
            problems.append(RowProblem(line, message, kind, cell))
        names.append(name or "")
    table.refuse(problems)
    return names
