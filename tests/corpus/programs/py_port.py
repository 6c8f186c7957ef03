import http.server

print("serving metrics on port 6006", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", 6006), http.server.BaseHTTPRequestHandler).serve_forever()
