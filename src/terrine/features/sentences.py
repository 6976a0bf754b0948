"""The folder of a sentence-transformers model, read with PyTorch alone: a BERT, pooled; nothing is fetched or executed.

The package of that name is not needed: it imports the classes that a folder names, and its batches are padded to their
longest text, so that a text's numbers would depend on the others. Here a text is padded by its own length.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrine._models import load_arrays
from terrine._optional import require_torch
from terrine.datasets.rows import Rows, Texts
from terrine.errors import DataError, InputError, StoreError
from terrine.features.auto import device_of
from terrine.features.loaders import SENTENCES, Loaded
from terrine.features.wordpiece import WordPiece

_BLOCK = 256  # texts at once, of which equal ones are one
_BATCH = 16  # texts of one padded length
_STEP = 16  # tokens that lengths are padded to a multiple of
_WEIGHTS = "model.safetensors"
_READ = (
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
)
_INSTEAD = "Export it to ONNX with a function around it that makes tokens, or give a function that encodes texts"


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What is done to a text, as the folder's files say."""

    heads: int
    layers: int
    epsilon: float
    most: int  # tokens
    pooling: str  # mean or cls
    normalized: bool
    prompt: str


def of_folder(folder: Path, *, device: str) -> Loaded:
    """A BERT with mean or first-token pooling; any other model is refused in words."""
    files = _files(folder)
    plan = _plan(folder, files)
    tokens = WordPiece.from_files(files, who=folder.name)
    if not (folder / _WEIGHTS).is_file():
        raise DataError(
            f"{folder}: there is no {_WEIGHTS}. Weights in pytorch_model.bin are a pickle, which runs code when it is "
            "read: have the model saved in safetensors."
        )
    data = (folder / _WEIGHTS).read_bytes()
    digest = hashlib.sha256(hashlib.sha256(data).digest())
    for name in sorted(files):
        digest.update(f"{name} {json.dumps(files[name], sort_keys=True)}".encode())
    try:
        weights = _tensors(load_arrays(data, what="the model"), plan, device=device_of(device))
    except (StoreError, KeyError, RuntimeError, TypeError):
        raise DataError(f"{folder / _WEIGHTS}: the weights are damaged, or do not fit config.json.") from None
    return Loaded(
        kind=SENTENCES,
        name=folder.resolve().name,
        digest=digest.hexdigest(),
        apply=_applied(tokens, weights, plan, device_of(device)),
        block=_BLOCK,
    )


def _files(folder: Path) -> dict[str, Any]:
    """What the folder says, parsed; by name."""
    found: dict[str, Any] = {}
    names = [*_READ, *(str(path.relative_to(folder)) for path in sorted(folder.glob("*_Pooling/config.json")))]
    for name in names:
        path = folder / name
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
                found[name] = text if name.endswith(".txt") else json.loads(text)
            except ValueError:
                raise DataError(f"{path}: the file is damaged.") from None
    if "config.json" not in found:
        raise DataError(
            f"{folder}: there is no config.json in it, so it is not the folder of a sentence-transformers model."
        )
    return found


def _plan(folder: Path, files: dict[str, Any]) -> _Plan:
    who = folder.name
    config, more = files["config.json"], files.get("sentence_bert_config.json", {})
    said = files.get("config_sentence_transformers.json", {})
    try:
        steps = [str(one["type"]).rsplit(".", 1)[-1] for one in files.get("modules.json", [])] or ["Transformer"]
        kind = (config["model_type"], config.get("hidden_act", "gelu"))
        if kind != ("bert", "gelu") or config.get("position_embedding_type", "absolute") != "absolute":
            raise DataError(f"{who} is a {kind[0]} with {kind[1]}, and only plain BERTs are read here. {_INSTEAD}.")
        if steps not in (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            raise DataError(f"{who} has the modules {', '.join(steps)}; read are Transformer, Pooling and Normalize.")
        pooling: dict[str, Any] = next((files[name] for name in files if name.endswith("_Pooling/config.json")), {})
        ways = {name.removeprefix("pooling_mode_") for name, on in pooling.items() if on is True and "_mode_" in name}
        ways |= {f"{pooling['pooling_mode']}"} if isinstance(pooling.get("pooling_mode"), str) else set()
        ways = {{"mean_tokens": "mean", "cls_token": "cls"}.get(way, way) for way in ways} or {"mean"}
        if ways not in ({"mean"}, {"cls"}):
            raise DataError(f"{who} pools by {', '.join(sorted(ways))}; mean and cls are read here. {_INSTEAD}.")
        name = said.get("default_prompt_name")
        tokens = files.get("tokenizer_config.json", {}).get("model_max_length", config["max_position_embeddings"])
        return _Plan(
            heads=int(config["num_attention_heads"]),
            layers=int(config["num_hidden_layers"]),
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            most=int(min(more.get("max_seq_length") or tokens, config["max_position_embeddings"])),
            pooling=next(iter(ways)),
            normalized=steps[-1] == "Normalize",
            prompt="" if name is None else str(said["prompts"][name]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise DataError(f"{folder}: its configuration is damaged, or of a version that is not known here.") from None


def _tensors(arrays: dict[str, NDArray[Any]], plan: _Plan, *, device: str) -> dict[str, Any]:
    """The weights by name, without what a task's head adds; a name that is missing raises a KeyError."""
    torch = require_torch()
    plain = {name.removeprefix("bert."): array for name, array in arrays.items()}
    names = [f"embeddings.{one}_embeddings.weight" for one in ("word", "position", "token_type")]
    inner = ["attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"]
    inner += ["attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"]
    both = ["embeddings.LayerNorm", *(f"encoder.layer.{k}.{one}" for k in range(plan.layers) for one in inner)]
    names += [f"{one}.{part}" for one in both for part in ("weight", "bias")]
    return {name: torch.from_numpy(plain[name].astype(np.float32)).to(device) for name in names}


def _applied(tokens: WordPiece, weights: dict[str, Any], plan: _Plan, device: str) -> Callable[[Rows], Any]:
    width = int(weights["embeddings.word_embeddings.weight"].shape[1])

    def apply(rows: Rows) -> NDArray[np.float32]:
        if not isinstance(rows, Texts):
            raise InputError("A sentence-transformers model takes texts, and the rows are numbers.")
        texts = rows.native().tolist()
        ids = {text: tokens.tokens(plan.prompt + text.strip(), most=plan.most) for text in dict.fromkeys(texts)}
        alike: dict[int, list[str]] = {}
        for text, some in ids.items():
            alike.setdefault(-(-len(some) // _STEP) * _STEP, []).append(text)
        found: dict[str, NDArray[np.float32]] = {}
        for length, group in alike.items():
            for start in range(0, len(group), _BATCH):
                part = group[start : start + _BATCH]
                batch = np.zeros((2, _BATCH, min(length, plan.most)), dtype=np.int64)  # ids; which are there
                for k in range(_BATCH):
                    some = ids[part[k if k < len(part) else 0]]
                    batch[0, k], batch[1, k, : len(some)] = tokens.vocabulary["[PAD]"], 1
                    batch[0, k, : len(some)] = some
                seen = _forward(weights, plan, batch, device)
                found |= {text: seen[k] for k, text in enumerate(part)}
        return np.stack([found[text] for text in texts]).reshape(len(texts), width)

    return apply


def _forward(w: dict[str, Any], plan: _Plan, batch: NDArray[np.int64], device: str) -> NDArray[np.float32]:
    """(texts, width): BERT, then the mean over tokens or the first of them."""
    torch = require_torch()
    F = torch.nn.functional
    ids, there = torch.from_numpy(batch).to(device)
    n, length = ids.shape

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x: Any, name: str) -> Any:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], plan.epsilon)

    def heads(x: Any) -> Any:
        return x.view(n, length, plan.heads, -1).transpose(1, 2)

    with torch.inference_mode():
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][:length] + w["embeddings.token_type_embeddings.weight"][0]
        x = norm(x, "embeddings.LayerNorm")
        mask = there[:, None, None, :].bool()
        for k in range(plan.layers):
            at = f"encoder.layer.{k}."
            q, key, v = (heads(linear(x, f"{at}attention.self.{one}")) for one in ("query", "key", "value"))
            mixed = F.scaled_dot_product_attention(q, key, v, attn_mask=mask).transpose(1, 2).reshape(n, length, -1)
            x = norm(x + linear(mixed, f"{at}attention.output.dense"), f"{at}attention.output.LayerNorm")
            wide = F.gelu(linear(x, f"{at}intermediate.dense"))
            x = norm(x + linear(wide, f"{at}output.dense"), f"{at}output.LayerNorm")
        weight = there[:, :, None].float()
        found = x[:, 0] if plan.pooling == "cls" else (x * weight).sum(1) / weight.sum(1)
        found = F.normalize(found, dim=1) if plan.normalized else found
    numbers: NDArray[np.float32] = found.cpu().numpy()
    return numbers
