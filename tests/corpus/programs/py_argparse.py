import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--model", choices=["small", "base"], required=True)
args = parser.parse_args()
print(args)
