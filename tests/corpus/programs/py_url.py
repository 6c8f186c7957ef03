import urllib.request

print("fetching the vocabulary")
urllib.request.urlopen("http://127.0.0.1:9/vocab.json", timeout=2)
