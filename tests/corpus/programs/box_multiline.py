"""The message has many lines, the last of which are advice."""
raise RuntimeError("""
The tokenizer and the model have different vocabularies:
    tokenizer: 32000
    model:     32064

Resize the embeddings with model.resize_token_embeddings(len(tokenizer)).
Error: see above.""")
