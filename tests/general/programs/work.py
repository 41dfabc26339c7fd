"""Ordinary work in Python: prints one line of JSON for each thing that was done."""
import asyncio
import concurrent.futures
import hashlib
import http.client
import json
import multiprocessing
import os
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time


def tell(name, value):
    print(json.dumps({"name": name, "value": value}), flush=True)


def threads():
    total = []
    lock = threading.Lock()

    def add(number):
        with lock:
            total.append(number)

    workers = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        hashes = list(pool.map(lambda n: hashlib.sha256(bytes(n)).hexdigest(), range(64)))
    return [sorted(total), len(set(hashes))]


def square(number):
    return number * number


def processes():
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        squares = pool.map(square, range(5))
    spoken = subprocess.run(
        [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"],
        input="hello", capture_output=True, text=True, check=True)
    return [squares, spoken.stdout.strip()]


def files():
    path = "/workspace/notes/deep"
    os.makedirs(path)
    name = os.path.join(path, "note.txt")
    with open(name, "w", encoding="utf-8") as file:
        file.write("grüße\n" * 1000)
        file.flush()
        os.fsync(file.fileno())
    os.rename(name, name + ".old")
    os.symlink("note.txt.old", name)
    with tempfile.TemporaryDirectory() as directory:
        scratch = os.path.join(directory, "x")
        open(scratch, "wb").write(os.urandom(1 << 20))
        size = os.path.getsize(scratch)
    database = sqlite3.connect("/workspace/notes/db.sqlite")
    database.execute("create table t (n integer)")
    database.executemany("insert into t values (?)", [(n,) for n in range(100)])
    database.commit()
    rows = database.execute("select sum(n) from t").fetchone()[0]
    try:
        open("/usr/here", "w")
        written = "written"
    except OSError as error:
        written = error.strerror
    return [len(open(name, encoding="utf-8").read()), size, rows, written]


class Broker(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect("/broker/broker.sock")


def broker():
    connection = Broker("broker")
    connection.request("POST", "/model", json.dumps({"from": "python"}),
                       {"content-type": "application/json", "connection": "close"})
    answer = connection.getresponse()
    return [answer.status, json.loads(answer.read())]


async def waits():
    start = time.monotonic()
    ticks = await asyncio.gather(*(asyncio.sleep(0.02, n) for n in range(20)))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('child')", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return [len(ticks), time.monotonic() - start >= 0.02, output.decode().strip()]


def names():
    try:
        socket.getaddrinfo("example.org", 443)
        return "resolved"
    except socket.gaierror:
        return "failed cleanly"


def network():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        return "a socket"
    except OSError as error:
        return error.strerror


def proc():
    status = open("/proc/self/status").read()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return [fields["Name"].strip(), fields["CapEff"].strip(), fields["Seccomp"].strip(),
            sorted(name for name in os.listdir("/proc") if not name.isdigit())]


def shared():
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=4096)
    block.buf[:5] = b"hello"
    again = shared_memory.SharedMemory(block.name)
    text = bytes(again.buf[:5]).decode()
    again.close()
    block.close()
    block.unlink()
    semaphore = multiprocessing.Semaphore(1)
    with semaphore:
        return [text, os.path.exists("/dev/shm")]


if __name__ == "__main__":
    tell("threads", threads())
    tell("processes", processes())
    tell("files", files())
    tell("broker", broker())
    tell("waits", asyncio.run(waits()))
    tell("names", names())
    tell("network", network())
    tell("proc", proc())
    tell("shared", shared())
    tell("identity", [os.getcwd(), os.environ["HOME"], os.uname().nodename, os.umask(0)])
