"""Call a function for each message in two processes; a poisonous message becomes a dead letter with its reason."""

from deltalake import DeltaTable

from ledger import Ledger, Reject


def answer(message):
    """Return the row of a message. Reject makes it a dead letter at once: no retry helps."""
    if not message.body.strip():
        raise Reject("an empty prompt")
    return {"prompt": message.body, "words": len(message.body.split())}


if __name__ == "__main__":
    ledger = Ledger.open("shop")
    dead = ledger.create_queue("dead")
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3}
    queue = ledger.create_queue("prompts", {"VisibilityTimeout": 30, "RedrivePolicy": policy})
    queue.send([f"prompt number {number}" for number in range(200)] + [" "])
    done = queue.consume(answer, "./answers", processes=2, concurrency=4)
    assert (done.messages, done.rejected) == (200, 1), done
    assert DeltaTable("answers").count() == 200
    print(done, ledger.sql("SELECT reason, messages FROM dead_letters").to_pylist())
