from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")
