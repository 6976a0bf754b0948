"""Features as a run's settings ask for them: made once, from public rows alone, and kept."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terrine.datasets import PublicData
from terrine.errors import DataError, InputError, StoreError
from terrine.runs.anew import or_anew
from terrine.runs.features_config import FeaturesConfig

if TYPE_CHECKING:
    from terrine.features import AnyFeatures

FEATURES = "features.safetensors"  # in a run's folder
_COMPONENTS = 500  # as `AutoRecipe` has it


def features_of(
    settings: FeaturesConfig, public: PublicData, *, seed: int, device: str, kept: Path | None = None
) -> AnyFeatures:
    """What teachers and student see of rows.

    Args:
        public: the rows that they are learned from.
        device: that of the teachers.
        kept: a file to keep them in, or to read them from if it is there.
    """
    from terrine.features import AutoFeatures, AutoRecipe, FeatureRecipe, Features, fit_auto, fit_features
    from terrine.features.edges import Edges

    if settings.kind == "edges":
        return Edges(row_shape=public.X.shape[1:])
    if settings.own:
        return _own(settings, public, seed=seed, device=device, kept=kept)
    made: Features | AutoFeatures
    if kept is not None and kept.is_file():
        return (AutoFeatures if settings.kind == "auto" else Features).load(kept)
    try:
        if settings.kind == "auto":
            made = fit_auto(public, recipe=AutoRecipe(**settings.options), seed=seed, device=device)
        else:
            made = fit_features(public, recipe=FeatureRecipe(**settings.options), seed=seed, device=device)
    except TypeError as error:
        raise InputError(f"features.options: {error}.") from None
    if kept is not None:
        made.save(kept)
    return made


def features_digest(folder: Path) -> str | None:
    """Of a run's features as they are kept: what its teachers or its probe learned on. None where none are kept."""
    path = folder / FEATURES
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def check_features(folder: Path) -> None:
    """Refuse features that are not those that the run's teachers, or its probe, learned on."""
    path = folder / "rows.json"
    if not path.is_file():
        return
    try:
        known = json.loads(path.read_text(encoding="utf-8")).get("features")
    except (ValueError, AttributeError):
        return  # damaged: whoever reads the rows' shape there says so
    if known is not None and known != features_digest(folder):
        raise StoreError(
            f"{folder / FEATURES} is not the file that this run learned on: its sha256 is not that in rows.json. "
            f"Put it back, or {or_anew(folder)}"
        )


def given_encoder(settings: FeaturesConfig) -> Any:
    """What the settings name, as `as_features` takes it."""
    if settings.kind == "sklearn" and settings.name is not None:
        from terrine.runs.factories import estimator_of

        return estimator_of(settings.name, settings.options)
    if settings.path is not None and not settings.path.exists():
        raise InputError(f"features.path: there is no {settings.path}. Nothing was taught or spent.")
    suffixes = {"onnx": (".onnx",), "torch": (".pt", ".pth", ".ts", ".torchscript"), "sklearn": (".skops",)}
    wanted = suffixes.get(settings.kind, ())
    if settings.path is not None and wanted and settings.path.suffix.lower() not in wanted:
        raise InputError(
            f'features.path: kind = "{settings.kind}" reads files that end in {" or ".join(wanted)}, and this is '
            f"{settings.path.name}."
        )
    if settings.kind == "sentence-transformers" and settings.path is not None and not settings.path.is_dir():
        raise InputError(f"features.path: {settings.path.name} is a file, and a folder is needed.")
    if settings.name is not None and ":" not in settings.name:
        raise InputError(f'features.name must be "package.module:function", got {settings.name!r}.')
    return settings.name if settings.path is None else settings.path


def check_encoders(settings: FeaturesConfig) -> None:
    """Refuse an encoder that is not there, before anything is written."""
    if settings.encoders is None:
        given_encoder(settings)
    for one in settings.encoders or ():
        if one != "auto" and ":" not in one and not Path(one).exists():
            raise InputError(f"features.encoders: there is no {one}. Nothing was taught or spent.")


def _own(settings: FeaturesConfig, public: PublicData, *, seed: int, device: str, kept: Path | None) -> AnyFeatures:
    """A user's own encoder, or the best of several by public rows."""
    from terrine.features import as_features, choose_features
    from terrine.features.edges import Edges

    if kept is not None and kept.is_file():
        return _kept(settings, kept, device=device)
    components = _COMPONENTS if settings.components is None else settings.components or None
    how: dict[str, Any] = {"seed": seed, "device": device, "components": components, "block": settings.block}
    if settings.encoders is None:
        made = as_features(given_encoder(settings), public, **how)
    else:
        made = choose_features(settings.encoders, public, **how)
    if kept is not None and not isinstance(made, Edges):
        made.save(kept)
    return made


def _kept(settings: FeaturesConfig, kept: Path, *, device: str) -> AnyFeatures:
    """As they were made; an encoder that their file does not carry is read again, and must be the same."""
    from terrine.features import load_features

    if settings.encoders is None:
        again = None if settings.kind in ("onnx", "sklearn") else given_encoder(settings)
        return load_features(kept, encoder=again, device=device)
    failed: DataError | None = None
    for one in (None, *settings.encoders):
        try:
            return load_features(kept, encoder=one, device=device)
        except DataError as error:
            failed = error
    assert failed is not None
    raise failed
