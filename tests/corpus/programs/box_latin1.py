import sys

sys.stderr.buffer.write("Avertissement: fichier réglé\n".encode("latin-1"))
sys.stderr.reconfigure(encoding="latin-1")
raise RuntimeError("données incomplètes: il manque 3 colonnes à l'entrée")
