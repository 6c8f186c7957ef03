raise ValueError("Größe des Stapels: erwartet 32 — erhalten „zweiunddreißig“ (数据/训练集.csv, строка 7)")
