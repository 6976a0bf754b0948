"""The folder of a sentence-transformers model, beside what that package makes of it (tiny_bert_golden.json)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from terrine.datasets.rows import as_rows
from terrine.errors import DataError, InputError
from terrine.features import EncoderFeatures, as_features, load_features
from terrine.features.sentences import _files, of_folder
from terrine.features.wordpiece import WordPiece

FOLDER = Path(__file__).parent / "tiny_bert"  # random weights, saved by sentence-transformers
GOLDEN = json.loads((Path(__file__).parent / "tiny_bert_golden.json").read_text(encoding="utf-8"))
TEXTS = [f"the {a} {b} on a {c}" for a in ("cat", "dog") for b in ("sat", "ran", "saw") for c in ("mat", "hill" * 9)]


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "tiny"))


def change(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_tokens_are_those_of_the_package():
    tokens = WordPiece.from_files(_files(FOLDER), who="tiny")
    for text, ids in zip(GOLDEN["texts"], GOLDEN["tokens"], strict=True):
        assert tokens.tokens(text.strip(), most=24) == ids


def test_a_vocabulary_alone_gives_the_same_tokens(folder):
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=vocabulary.__getitem__)) + "\n")
    whole = as_features(folder, TEXTS).transform(GOLDEN["texts"])
    (folder / "tokenizer.json").unlink()
    assert (as_features(folder, TEXTS).transform(GOLDEN["texts"]) == whole).all()


def test_embeddings_are_those_of_the_package():
    found = of_folder(FOLDER, device="cpu").apply(as_rows("X", GOLDEN["texts"]))
    assert np.abs(found - np.array(GOLDEN["mean"])).max() < 1e-5


def test_the_first_token_may_stand_for_the_text(folder):
    change(folder, "1_Pooling/config.json", pooling_mode="cls")
    steps = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(steps[:2]))
    found = of_folder(folder, device="cpu").apply(as_rows("X", GOLDEN["texts"]))
    assert np.abs(found - np.array(GOLDEN["cls"])).max() < 1e-4


def test_the_names_of_older_versions_are_known(folder):
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": 16,
                "pooling_mode_cls_token": False,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
            }
        )
    )
    types = [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")]
    (folder / "modules.json").write_text(json.dumps([{"idx": k, "type": one} for k, one in enumerate(types)]))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24, "do_lower_case": False}))
    found = of_folder(folder, device="cpu").apply(as_rows("X", GOLDEN["texts"]))
    assert np.abs(found - np.array(GOLDEN["mean"])).max() < 1e-5


def test_a_text_has_the_same_numbers_in_any_company():
    features = as_features(FOLDER, TEXTS)
    assert (features.kind, features.name, features.n_features) == ("sentence-transformers", "tiny_bert", 16)
    whole = features.transform(GOLDEN["texts"])
    for k, text in enumerate(GOLDEN["texts"]):
        assert (features.transform([text])[0] == whole[k]).all()
    assert (features.transform(GOLDEN["texts"][::-1])[::-1] == whole).all()


def test_a_file_of_features_names_the_folder_and_knows_it_again(folder, tmp_path):
    features = as_features(FOLDER, TEXTS)
    features.save(tmp_path / "kept.safetensors")
    with pytest.raises(DataError, match="it needs the folder of the sentence-transformers model tiny_bert"):
        EncoderFeatures.load(tmp_path / "kept.safetensors")
    again = load_features(tmp_path / "kept.safetensors", encoder=folder)  # its name may differ
    assert (again.transform(TEXTS) == features.transform(TEXTS)).all()
    change(folder, "config.json", layer_norm_eps=0.1)
    with pytest.raises(DataError, match="not the one that"):
        load_features(tmp_path / "kept.safetensors", encoder=folder)


def test_what_is_no_such_model_is_refused_in_words(folder, tmp_path):
    for name, values, said in (
        ("config.json", {"model_type": "mpnet"}, "tiny is a mpnet with gelu, and only plain BERTs are read here"),
        ("config.json", {"num_hidden_layers": 3}, "the weights are damaged, or do not fit config.json"),
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pools by max; mean and cls are read here"),
        ("config.json", {"num_attention_heads": "four"}, "its configuration is damaged"),
        ("tokenizer.json", {"normalizer": {"type": "NFC"}}, "its tokenizer is no WordPiece"),
    ):
        before = (folder / name).read_text()
        change(folder, name, **values)
        with pytest.raises(DataError, match=said):
            as_features(folder, TEXTS)
        (folder / name).write_text(before)
    with pytest.raises(InputError, match="takes texts, and the rows are numbers"):
        as_features(folder, np.eye(4))
    with pytest.raises(DataError, match=r"there is no config\.json in it"):
        as_features(tmp_path, TEXTS)


def test_weights_in_a_pickle_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="are a pickle, which runs code"):
        as_features(folder, TEXTS)
