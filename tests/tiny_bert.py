"""A tiny BERT with random weights, for the tests of text models."""

WORDS = ["cat", "dog", "fish", "bird", "good", "bad", "the", "a", "eats", "runs"]


def save_tiny_bert(folder, kind="BertModel", **options):
    """Save a BERT of two layers of width 32, with dropout, that knows ten words."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        initializer_range=0.2,
        **options,
    )
    torch.manual_seed(0)
    getattr(transformers, kind)(config).save_pretrained(folder)
    return folder
