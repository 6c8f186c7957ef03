"""The samples that are printed have a traceback in them: the model is trained on code."""
import sys

SAMPLE = '''sample 17:
Traceback (most recent call last):
  File "app.py", line 3, in <module>
    main()
ValueError: invalid literal for int() with base 10: 'x'
'''
print(SAMPLE, flush=True)
print("step 0 loss 3.21", flush=True)
sys.exit("BLEU is 0.0 after warm-up, stopping")
