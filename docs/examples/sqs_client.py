"""Serve a ledger to boto3: a program written for SQS, whose endpoint, region and key alone are others."""

import json
import os
import signal
import subprocess
import sys

import boto3

from ledger import Ledger

key = {"LEDGER_ACCESS_KEY_ID": "worker", "LEDGER_SECRET_ACCESS_KEY": "a-long-secret"}
command = [sys.executable, "-m", "ledger", "serve", "shop", "--create", "--json", "--port", "0"]
with subprocess.Popen(command, env={**os.environ, **key}, stdout=subprocess.PIPE, text=True) as server:
    address = json.loads(server.stdout.readline())["url"]
    sqs = boto3.client(
        "sqs",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id=key["LEDGER_ACCESS_KEY_ID"],
        aws_secret_access_key=key["LEDGER_SECRET_ACCESS_KEY"],
    )
    url = sqs.create_queue(QueueName="orders", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    sqs.send_message_batch(
        QueueUrl=url, Entries=[{"Id": str(number), "MessageBody": f"order {number}"} for number in range(3)]
    )
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=5)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=received[0]["ReceiptHandle"])
    server.send_signal(signal.SIGTERM)

# The same queue, from Python, while nobody serves it.
counts = Ledger.open("shop").queue("orders").counts()
assert (counts.in_flight, counts.deleted) == (len(received) - 1, 1), counts
print(counts)
