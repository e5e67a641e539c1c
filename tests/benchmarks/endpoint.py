"""The endpoint under load: `python tests/benchmarks/endpoint.py [--clients 32] [--seconds 20] [--queues 1]`.

Unmodified boto3 clients in processes of their own send, receive and delete in batches of ten; one alone measures what
a verb takes on an idle queue; open long polls are there meanwhile if asked for. The server is `ledger serve`, on a
folder. What the processor is used for is told, too: clients and the server share it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import boto3
from botocore.config import Config

CHECKOUT = Path(__file__).resolve().parents[2]
KEY, SECRET = "AKIDOFTHELOAD", "the secret of the load"
PROCESSES, BATCH = 4, 10


def client_of(url):
    config = Config(max_pool_connections=64, retries={"total_max_attempts": 5, "mode": "standard"})
    return boto3.client(
        "sqs", region_name="us-east-1", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET,
        config=config,
    )  # fmt: skip


class Server:
    """`ledger serve` in a process of its own."""

    def __init__(self, root, threads):
        environment = {**os.environ, "LEDGER_ACCESS_KEY_ID": KEY, "LEDGER_SECRET_ACCESS_KEY": SECRET}
        command = [sys.executable, "-m", "ledger.cli", "serve", root, "--create", "--port", "0"]
        command += ["--threads", str(threads)]
        self.process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stderr=subprocess.PIPE, text=True)
        found = None
        while not found:
            line = self.process.stderr.readline()
            if not line:
                sys.exit("the server does not start")
            found = re.search(r"serving at (\S+)", line)
        self.url = found[1]

    def processor(self):
        """Seconds of the processor that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=120)
        return self.process.returncode


def cycles(url, queue_url, seconds, threads, barrier, results):
    """Clients of one process: each sends ten, receives ten, deletes ten, until the time is over."""
    done, lock = {"send": [], "receive": [], "delete": [], "messages": 0, "errors": 0}, threading.Lock()

    def timed(client, kind, call, **given):
        began = time.perf_counter()
        try:
            return getattr(client, call)(QueueUrl=queue_url, **given)
        except client.exceptions.ClientError:
            with lock:
                done["errors"] += 1
            return {}
        finally:
            with lock:
                done[kind].append(time.perf_counter() - began)

    def work(client):
        entries = [{"Id": str(n), "MessageBody": f"a body of some length, number {n}"} for n in range(BATCH)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            timed(client, "send", "send_message_batch", Entries=entries)
            got = timed(client, "receive", "receive_message", MaxNumberOfMessages=BATCH).get("Messages", [])
            if got:
                handles = [{"Id": str(n), "ReceiptHandle": one["ReceiptHandle"]} for n, one in enumerate(got)]
                gone = timed(client, "delete", "delete_message_batch", Entries=handles)
                with lock:
                    done["messages"] += len(gone.get("Successful", []))

    clients = [client_of(url) for _ in range(threads)]
    barrier.wait()
    used = time.process_time()
    workers = [threading.Thread(target=work, args=(client,)) for client in clients]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    done["processor"] = time.process_time() - used
    results.put(done)


def load(server, queue_urls, clients, seconds):
    """Runs the clients; returns what they did together."""
    url = server.url
    context = multiprocessing.get_context("spawn")
    processes = min(PROCESSES, clients)
    barrier, results = context.Barrier(processes), context.Queue()
    arguments = [(url, queue_urls[n % len(queue_urls)], seconds, clients // processes) for n in range(processes)]
    runs = [context.Process(target=cycles, args=(*one, barrier, results)) for one in arguments]
    for run in runs:
        run.start()
    used = server.processor()
    found = [results.get() for _ in runs]
    used = server.processor() - used
    for run in runs:
        run.join()
    by_clients = sum(one["processor"] for one in found)
    return {
        "clients": clients,
        "messages a second": round(sum(one["messages"] for one in found) / seconds),
        "errors": sum(one["errors"] for one in found),
        "processor seconds": {"clients": round(by_clients, 1), "server": round(used, 1)},
        **{kind: quantiles([t for one in found for t in one[kind]]) for kind in ("send", "receive", "delete")},
    }


def quantiles(times):
    if len(times) < 2:
        return {}
    cut = statistics.quantiles(times, n=100)
    return {"requests": len(times), "median ms": round(cut[49] * 1_000), "99 % ms": round(cut[98] * 1_000)}


def idle(client, queue_url, times=40):
    """What one client waits for on a queue that nobody else uses, in milliseconds: the medians."""
    found = {"send": [], "receive": [], "change": [], "delete": []}

    def timed(kind, call, **given):
        began = time.perf_counter()
        result = call(QueueUrl=queue_url, **given)
        found[kind].append((time.perf_counter() - began) * 1_000)
        return result

    for _ in range(times):
        timed("send", client.send_message, MessageBody="body")
        (message,) = timed("receive", client.receive_message)["Messages"]
        handle = message["ReceiptHandle"]
        timed("change", client.change_message_visibility, ReceiptHandle=handle, VisibilityTimeout=60)
        timed("delete", client.delete_message, ReceiptHandle=handle)
    return {f"{kind} ms": round(statistics.median(some[5:]), 1) for kind, some in found.items()}


def polling(url, queue_url, count):
    """Open long polls, without SDKs: a connection each."""
    import http.client
    from urllib.parse import urlsplit

    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    found = []
    for number in range(count):
        body = json.dumps({"QueueUrl": queue_url, "WaitTimeSeconds": 20, "VisibilityTimeout": number})
        headers = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.ReceiveMessage"}
        request = AWSRequest("POST", url + "/", headers, body.encode())
        SigV4Auth(Credentials(KEY, SECRET), "sqs", "us-east-1").add_auth(request)
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("POST", "/", body, dict(request.headers.items()))
        found.append(connection)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--polls", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(str(Path(folder) / "ledger"), options.threads)
        client = client_of(server.url)
        urls = [client.create_queue(QueueName=f"load-{n}")["QueueUrl"] for n in range(options.queues)]
        quiet = client.create_queue(QueueName="quiet")["QueueUrl"]
        print(json.dumps({"idle": idle(client, client.create_queue(QueueName="idle")["QueueUrl"])}), flush=True)
        polls = polling(server.url, quiet, options.polls)
        if polls:
            beside = idle(client, client.create_queue(QueueName="beside")["QueueUrl"])
            print(json.dumps({f"idle beside {len(polls)} long polls": beside}), flush=True)
        print(json.dumps(load(server, urls, options.clients, options.seconds)), flush=True)
        for connection in polls:
            connection.close()
        if server.end() != 0:
            sys.exit("the server did not end well")


if __name__ == "__main__":
    main()
