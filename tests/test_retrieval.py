"""Bi-encoders: the loss, its collator and the evaluators, with a tiny transformer made here."""

import importlib.util
import os

import pytest
import torch

import twinrank as tr

if importlib.util.find_spec("sentence_transformers") is None:
    pytest.skip("needs sentence-transformers", allow_module_level=True)

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is fetched

WORDS = ["cat", "dog", "fish", "bird", "good", "bad", "the", "a", "eats", "runs"]
ROWS = [
    {"query": "cat", "documents": ["a cat runs", "bad dog", "fish"], "labels": [2, 0, 1]},
    {"query": "the dog", "documents": ["good dog"], "labels": [1]},
    {"query": "fish", "documents": ["fish eats", "bird", "fish", "a cat"], "labels": [1, 0, 0, 3]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A saved BERT of two layers of width 32, with dropout, that knows ten words."""
    from transformers import BertConfig, BertModel, BertTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = tmp_path_factory.mktemp("bi") / "tiny"
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(folder))
    pooling = Pooling(transformer.get_embedding_dimension())
    return SentenceTransformer(modules=[transformer, pooling], device="cpu").eval()
