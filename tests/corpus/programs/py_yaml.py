import yaml

TEXT = """
model:
  layers: 12
   heads: 8
optimizer: adamw
"""
print(yaml.safe_load(TEXT))
