"""A worker in Python: asks the model once, through the broker's socket."""
import http.client
import json
import socket
import sys


class Broker(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect("/broker/broker.sock")


turn = json.load(sys.stdin)
messages = [{"role": "user", "content": turn["text"]}]
connection = Broker("broker")
connection.request("POST", "/model", json.dumps({"model": turn["model"], "messages": messages}), {
    "content-type": "application/json", "authorization": "Bearer sandbox-dummy-key"})
answer = json.loads(connection.getresponse().read())
text = answer["choices"][0]["message"]["content"]
open("/workspace/said", "a").write(text)
print(json.dumps({"ok": True, "text": f"{turn['text']} {text}"}), end="")
