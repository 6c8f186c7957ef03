import json
import pathlib

from transformers import AutoModelForCausalLM

folder = pathlib.Path("/tmp/model")
folder.mkdir()
(folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 100, "n_head": 12, "n_layer": 2}))
(folder / "pytorch_model.bin").write_bytes(b"")
AutoModelForCausalLM.from_config(__import__("transformers").AutoConfig.from_pretrained(folder))
