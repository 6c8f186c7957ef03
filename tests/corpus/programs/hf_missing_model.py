from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("/data/models/llama-3-8b")
