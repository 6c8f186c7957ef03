print("loading")
print("Überanpassung: 0.31")
