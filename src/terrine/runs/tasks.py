"""Settings to rows: files are read once, columns go by name, and rows become numbers by public knowledge alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._files import same_rows_in, write_atomically
from terrine.datasets import (
    PrivateData,
    PublicData,
    Task,
    load,
    read_labelled,
    read_private,
    read_public,
    read_public_labels,
)
from terrine.errors import AdviceWarning, DataError, InputError, UnreadWarning
from terrine.runs.anew import or_anew
from terrine.runs.config import DataConfig, PublicDataConfig
from terrine.schema import Category, Encoder, PlainTexts, RowReader, Schema, Table, draft, is_table, read_table
from terrine.schema.cells import choices, number_of
from terrine.schema.checking import refuse_spoiled, unread
from terrine.schema.encoder import SCHEMA_FILE, WEIGHTS_FILE
from terrine.schema.tables import LABEL_COLUMN, UNIT_COLUMN
from terrine.schema.utf8 import refuse_not_utf8

Data = DataConfig | PublicDataConfig
ENCODER = "encoder"  # the folder of a run's encoder


def task_of(data: DataConfig, *, run: Path | None = None, texts: bool = False) -> Task:
    """Read the data; what does not fit together is refused before anyone is taught.

    Args:
        run: a run directory, which keeps the encoder of a table.
        texts: rows are the texts of a table's one column, for an encoder of the user's own.
    """
    if texts and (data.public is None or not is_table(data.public)):
        raise InputError(
            "[features] takes texts, and the data are neither a table with one column of text nor a folder of texts."
        )
    if data.name is not None:
        return load(data.name, **data.options)
    assert data.private is not None
    assert data.public is not None
    _refuse_private(data, data.public, role="data.public")
    _refuse_private(data, data.test, role="data.test")
    options: dict[str, Any] = {"unit": data.unit, "image_shape": data.image_shape}
    if is_table(data.public):
        begun = run is not None and (run / "partition.npz").is_file()
        if run is not None and begun and not texts and not (run / ENCODER / WEIGHTS_FILE).is_file():
            return _as_before(data)
        if run is None or not (begun or (run / ENCODER).is_dir()):
            _refuse_not_utf8(data)
        public = read_table(data.public)
        schema = schema_of(data, public)
        private_names = read_table(data.private, unit=data.unit if data.private.is_dir() else None)
        try:  # before anything is read
            schema.match(private_names, role=data.private.name, need_label=True, need_unit=schema.unit is not None)
        except DataError as error:
            if schema.label not in private_names.names and schema.label in public.names:
                raise DataError(
                    f"{error} {data.public.name} has the column {schema.label!r}: are data.private and data.public "
                    "swapped?"
                ) from None
            raise
        encoder = encoder_of(schema, public, role=data.public.name, run=run, texts=texts)
        private = read_private(data.private, encoder=encoder, **options)
        rows = PublicData(encoder.transform(public))
        return _own_task(data, public=rows, private=private, classes=schema.classes, encoder=encoder)
    if data.classes is None:
        raise InputError("data.classes: list the names of all classes.")
    classes = tuple(data.classes)
    private = read_private(data.private, classes=classes, **options)
    rows = read_public(data.public, image_shape=data.image_shape)
    return _own_task(data, public=rows, private=private, classes=classes)


def _refuse_private(data: DataConfig, file: Path | None, *, role: str) -> None:
    """Refuse private rows in the place of public ones: all that is done with public rows is shown."""
    if file is not None and data.private is not None and same_rows_in(data.private, file):
        raise InputError(
            f"{role} and data.private are the same rows ({data.private.name}). Public rows are shown without any "
            f"protection: give {role} other rows, which anyone may see."
        )


def _refuse_not_utf8(data: Data) -> None:
    """Of the files that anyone may see. What a private file holds below its header decides nothing."""
    for file in (data.public, data.test):
        if file is not None:
            refuse_not_utf8(file)


def public_task_of(
    data: PublicDataConfig,
    *,
    classes: tuple[str, ...],
    run: Path | None = None,
    encoder: Encoder | None = None,
) -> Task:
    """The public side alone, for a service's classes.

    Args:
        run: a run directory, which keeps the encoder of a table.
        encoder: the service's own, by which a table is read as its teachers' rows were.
    """
    if data.name is not None:
        found = load(data.name, **data.options)
        if found.classes != classes:
            raise InputError(f"The classes of {data.name} are not those of the service, which has {len(classes)}.")
        return replace(found, private=None, public_y=None)
    assert data.public is not None
    if run is None or not _begun(run):
        _refuse_not_utf8(data)
    if is_table(data.public) and encoder is not None:
        public = _for_encoder(data, encoder)
        _tell_unread(encoder.schema, public, role=data.public.name, refuse=run is None or not _begun(run))
        return _own_task(data, public=PublicData(encoder.transform(public)), classes=classes, encoder=encoder)
    if is_table(data.public):
        if data.schema_file is None:
            warnings.warn(
                f"The columns of {data.public.name} are read by a draft from that file alone. The service's teachers "
                "learned by their owner's schema: if bounds or categories differ, they are asked about different "
                "numbers. Ask the owner for schema.toml, which is public, and name it in data.schema.",
                AdviceWarning,
                stacklevel=2,
            )
        public = read_table(data.public)
        made = encoder_of(schema_of(data, public, classes=classes), public, role=data.public.name, run=run)
        if made.schema.label is not None and made.schema.classes != classes:
            raise InputError(f"The schema's classes are not those of the service, which has {len(classes)}.")
        return _own_task(data, public=PublicData(made.transform(public)), classes=classes, encoder=made)
    return _own_task(data, public=read_public(data.public, image_shape=data.image_shape), classes=classes)


def _begun(run: Path) -> bool:
    """Whether rows were dealt, or asked about: what was accepted then is not refused now."""
    return (run / "partition.npz").is_file() or (run / "answers.npz").is_file()


def _tell_unread(schema: Schema, public: Table, *, role: str, refuse: bool) -> None:
    """Warn of what cannot be read of rows that a service is to be asked about, and costs what other rows cost."""
    found = unread(schema, public, role=role)
    if refuse:
        refuse_spoiled([one for one in found if one.what != "unknown"], then="Nothing was asked.")
    for one in found:
        warnings.warn(str(one), UnreadWarning, stacklevel=2)


def _for_encoder(data: PublicDataConfig, encoder: Encoder) -> Table:
    """The public table, for the service's encoder; settings that say otherwise what its columns are, are refused."""
    assert data.public is not None
    for key in ("columns", "categories"):
        if getattr(data, key) is not None:
            raise InputError(f"data.{key}: the service says what the columns are. Leave it out.")
    public = read_table(data.public)
    if (
        data.schema_file is not None
        and schema_of(data, public, classes=encoder.schema.classes).columns != encoder.schema.columns
    ):
        raise InputError(
            f"{data.schema_file.name} is not the schema of the service: its teachers learned from other columns, or "
            "other bounds and categories. Leave data.schema out, and the service's own is used. Nothing was asked."
        )
    dropped = {*(data.ignore or ()), data.label, encoder.schema.label, encoder.schema.unit}
    return public.select([name for name in public.names if name not in dropped])


def kept_files(folder: Path) -> dict[str, bytes] | None:
    """The files of an encoder that a run keeps; None where there are none."""
    if not (folder / WEIGHTS_FILE).is_file():
        return None
    return {name: (folder / name).read_bytes() for name in (SCHEMA_FILE, WEIGHTS_FILE)}


def keep_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Keep an encoder's files, the weights last: without them the others do not count."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (SCHEMA_FILE, WEIGHTS_FILE):
        _write(folder / name, files[name])


def labelled_of(
    data: DataConfig, file: Path | None, *, texts: bool = False
) -> tuple[NDArray[Any], NDArray[np.int64], tuple[str, ...]]:
    """Labelled PUBLIC rows, for a rehearsal, and the names of the classes; the private file is not opened."""
    if data.name is not None:
        if file is not None:
            raise InputError("--labelled is for your own files; a built-in data set brings its own public labels.")
        found = load(data.name, **data.options)
        if found.public_y is None:
            raise InputError(f"The data set {data.name} has no labels for its public rows to rehearse with.")
        return found.public.X, found.public_y, found.classes
    _refuse_private(data, file, role="--labelled")
    if file is None:
        raise InputError("A rehearsal needs labeled public rows: name their file with --labelled.")
    assert data.public is not None
    if is_table(data.public):
        refuse_not_utf8(data.public)
        refuse_not_utf8(file)
        public = read_table(data.public)
        encoder = encoder_of(schema_of(data, public), public, role=data.public.name, run=None, texts=texts)
        X, y = read_labelled(file, encoder=encoder)
        return X, y, encoder.schema.classes
    if data.classes is None:
        raise InputError("data.classes: list the names of all classes.")
    X, y = read_labelled(file, classes=data.classes, image_shape=data.image_shape)
    return X, y, tuple(data.classes)


def public_labels_of(data: DataConfig, task: Task) -> NDArray[np.int64] | None:
    """Labels that the public file has for its rows, -1 where it has none; those of a built-in set are not for learning.

    They are public, and are used to choose between models, never to learn from.
    """
    if data.public is None:
        return None
    found = read_public_labels(data.public, classes=task.classes, encoder=task.encoder)
    if found is not None and len(found) != len(task.public):
        raise DataError(f"{data.public.name} must have one label for each row, or none.")
    return found


def schema_of(data: Data, public: Table, *, classes: Sequence[str] | None = None) -> Schema:
    """The schema that the settings name; else a draft from the public rows, with the columns that the settings list."""
    roles = _roles(data, classes)
    if data.schema_file is None:
        return _drafted(data, public, roles)
    name = data.schema_file.name
    try:
        found = Schema.from_toml(data.schema_file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{data.schema_file}: there is no such file. Draft one with: terrine schema {data.public} > {name}"
        ) from None
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: {error}") from None
    for role, given in roles.items():
        said = getattr(found, role)
        if given and said and said != given:
            raise InputError(f"data.{role} and `{role}` of {name} differ: give it in one of them.")
    merged: dict[str, Any] = {role: getattr(found, role) or given for role, given in roles.items()}
    if merged["label"] is None:
        merged["classes"] = ()
    elif not merged["classes"]:
        raise InputError(f"data.classes: list the names of all classes; {name} has no `classes`.")
    columns = {
        column: kind for column, kind in found.columns.items() if column not in (merged["label"], merged["unit"])
    }
    return replace(found, **merged, columns=columns)


def unread_public(data: Data) -> list[str]:
    """What cannot be read of a public table by the run's schema, in sentences: of categories, where none is listed."""
    if data.public is None or not is_table(data.public):
        return []
    public, name = read_table(data.public), data.public.name
    schema = schema_of(data, public)
    found = unread(schema, schema.match(public, role=name), role=name)
    return [str(one) for one in found if one.what != "unknown" or one.spoils_the_column]


def _roles(data: Data, classes: Sequence[str] | None) -> dict[str, Any]:
    """The label's column, its classes and the unit's column; those of a folder of texts have names of their own."""
    given = data.classes if isinstance(data, DataConfig) else classes
    unit = data.unit if isinstance(data, DataConfig) else None
    label = data.label
    if data.public is not None and data.public.is_dir():
        label, unit = LABEL_COLUMN, None if unit is None else UNIT_COLUMN
    return {"label": label, "classes": tuple(given or ()), "unit": unit}


def _drafted(data: Data, public: Table, roles: dict[str, Any]) -> Schema:
    assert data.public is not None
    for key, names in (("columns", data.columns), ("categories", data.categories)):
        for name in names or ():
            if name not in public.names:
                raise DataError(f"data.{key}: {data.public.name} has no column {name!r}.")
    if isinstance(data, DataConfig) and (roles["label"] is None or not roles["classes"]):
        raise InputError("data.label and data.classes: name the label's column and list all of its values.")
    if roles["label"] is None:
        roles = {**roles, "classes": None}
    found = draft(public, **roles, ignore=data.ignore or (), source=data.public.name)
    columns = {**found.columns, **{k: Category(values=tuple(v)) for k, v in (data.categories or {}).items()}}
    if data.columns is not None:
        columns = {name: columns[name] for name in data.columns if name in columns}
    kept = {*columns, found.label, found.unit}
    extra = [name for name in (*found.ignore, *public.names) if name not in kept]
    return replace(found, columns=columns, ignore=tuple(dict.fromkeys(extra)))


def encoder_of(schema: Schema, public: Table, *, role: str, run: Path | None, texts: bool = False) -> RowReader:
    """Learned once from the public rows, and kept with the run; another schema is refused once rows are dealt."""
    matched = schema.match(public, role=role)
    if run is None:
        return PlainTexts(schema) if texts else Encoder.fit(schema, matched)
    folder = run / ENCODER
    last = SCHEMA_FILE if texts else WEIGHTS_FILE  # the file that is written last: without it the others do not count
    if (folder / last).is_file():
        files = {name: (folder / name).read_bytes() for name in dict.fromkeys((SCHEMA_FILE, last))}
        kept = PlainTexts.from_files(files) if texts else Encoder.from_files(files)
        if kept.schema.digest == schema.digest:
            return kept
        if _begun(run):
            raise InputError(f"The schema has changed since rows were read in {run}. Put it back, or {or_anew(run)}")
    encoder = PlainTexts(schema) if texts else Encoder.fit(schema, matched)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in encoder.files().items():
        _write(folder / name, content)
    return encoder


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))


def _own_task(
    data: Data,
    *,
    public: PublicData,
    classes: tuple[str, ...],
    private: PrivateData | None = None,
    encoder: RowReader | None = None,
) -> Task:
    if data.test is None:
        return Task(private=private, public=public, classes=classes, encoder=encoder)
    X, y = read_labelled(data.test, classes=classes, image_shape=data.image_shape, encoder=encoder)
    return Task(private=private, public=public, classes=classes, test_X=X, test_y=y, encoder=encoder)


def _as_before(data: DataConfig) -> Task:
    """A table as version 0.1.0 read it, for run directories that it began: numbers as they are, columns by position."""
    assert data.private is not None
    assert data.public is not None
    classes, unit = tuple(data.classes or ()), None
    private = read_table(data.private)
    if data.unit is not None:
        cells = private.column(data.unit)
        unit = cells if cells.dtype.kind == "i" else [cell.strip() for cell in cells.tolist()]
    rows = PrivateData(_numbers(data, private, data.private), _names(data, private, data.private, classes), unit=unit)
    public = PublicData(_numbers(data, read_table(data.public), data.public))
    if data.test is None:
        return Task(private=rows, public=public, classes=classes)
    test = read_table(data.test)
    X, y = _numbers(data, test, data.test), _names(data, test, data.test, classes)
    return Task(private=rows, public=public, classes=classes, test_X=X, test_y=y)


def _numbers(data: DataConfig, table: Table, path: Path) -> NDArray[np.float64]:
    blocks = []
    for name in data.columns or [one for one in table.names if one not in (data.label, data.unit)]:
        column = table.column(name)
        listed = (data.categories or {}).get(name)
        if listed is not None:
            found = choices(column, listed, ())
            fine, block = found.known, np.eye(len(listed))[found.values.astype(np.int64)]
        else:
            read = [number_of(cell.strip()) for cell in column.tolist()] if column.dtype.kind not in "if" else column
            block = np.array([np.nan if one is None else one for one in read], dtype=np.float64)[:, None]
            fine = np.isfinite(block[:, 0])
        if not fine.all():
            raise DataError(f"{path.name}, column {name!r}: a cell cannot be used. Put the file back as it was.")
        blocks.append(block)
    return np.column_stack(blocks)


def _names(data: DataConfig, table: Table, path: Path, classes: tuple[str, ...]) -> NDArray[np.int64]:
    found = choices(table.column(data.label or ""), classes, ())
    if not found.known.all():
        raise DataError(f"{path.name}: a label is not among data.classes. Put the file back as it was.")
    return found.values.astype(np.int64)
