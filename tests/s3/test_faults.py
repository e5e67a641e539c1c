"""A storage that fails at a commit: what a verb says is so, nothing is lost, nothing is there twice."""

import itertools

import pytest

from ledger import Ledger
from ledger.errors import LedgerError
from tests.s3.server import CUT, LATE

#: (how the put of a commit is answered, how often, whether it was stored)
FAULTS = {
    "stored, 500": ("500", 1, True),
    "stored, 500 for long": ("500", 50, True),
    "stored, 503": ("503", 1, True),
    "stored, cut": (CUT, 1, True),
    "stored, late": (LATE, 1, True),
    "stored, 409": ("409", 1, True),
    "stored, 412": ("412", 1, True),
    "500": ("500", 1, False),
    "500 for long": ("500", 50, False),
    "503 slow down": ("503", 2, False),
    "cut": (CUT, 1, False),
    "409": ("409", 1, False),
    "412": ("412", 1, False),
}
#: What every run of the suite tries; the others are tried with --soak.
ALWAYS = ("stored, 500 for long", "500 for long", "412", "stored, cut")
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def ledger(s3):
    # No answer is waited for longer than that, and nothing is asked again and again for more.
    impatient = {"timeout": "2s", "retry_timeout": "2s", "max_retries": "3"}
    return Ledger.open(s3.root("faults"), storage_options={**s3.options, **impatient}, engine="delta-rs")


@pytest.fixture(params=[pytest.param(name, marks=() if name in ALWAYS else pytest.mark.soak) for name in FAULTS])
def fault(request, s3, ledger):
    """Lets the next commit to a table fail."""
    how, times, stored = FAULTS[request.param]
    yield lambda table: s3.fail("PUT", rf"/{table}/_delta_log/\d+\.json", how, times, stored=stored)
    s3.fail("PUT", "nothing", how, 0)


@pytest.fixture
def queue(ledger):
    queue = ledger.create_queue(f"jobs-{next(NUMBERS)}", {"Lanes": 1, "VisibilityTimeout": 600})
    queue.send(["a", "b"])
    return queue


def tried(verb):
    """Whether a verb says that it was done; else it raised an error of ours."""
    try:
        verb()
    except LedgerError:
        return False
    return True


def seen(ledger, s3, queue):
    """What another process finds: how many messages are visible and in flight."""
    other = Ledger.open(s3.root("faults"), storage_options=s3.options, engine="delta-rs").queue(queue.name)
    counts = other.counts()
    return counts.visible, counts.in_flight


def test_a_send(ledger, queue, s3, fault):
    fault("messages")
    done = tried(lambda: queue.send(["c"]))
    s3.fail("PUT", "nothing", "500", 0)
    assert seen(ledger, s3, queue) == (3 if done else 2, 0)
    queue.send(["d"])
    assert seen(ledger, s3, queue) == (4 if done else 3, 0)


@pytest.mark.soak_variants("500 for long", "stored, cut")
def test_a_receive_and_the_end_of_its_claim(ledger, queue, s3, fault):
    fault("visibility")
    claims = []
    done = tried(lambda: claims.append(queue.receive(1)))
    s3.fail("PUT", "nothing", "500", 0)
    assert seen(ledger, s3, queue) == ((1, 1) if done else (2, 0))
    claim = claims[0] if done else queue.receive(1)
    for verb, after in ((lambda: claim.extend(700), (1, 1)), (claim.delete, (1, 0))):
        before = seen(ledger, s3, queue)
        fault("visibility")
        done = tried(verb)
        s3.fail("PUT", "nothing", "500", 0)
        assert seen(ledger, s3, queue) == (after if done else before)
    if not done:
        claim.delete()
    assert seen(ledger, s3, queue) == (1, 0), "a verb that failed is tried again, and does its work once"


@pytest.mark.parametrize("how", ["409", "412"])
def test_a_file_of_rows_that_is_refused_is_not_committed(ledger, queue, s3, how):
    s3.fail("PUT", r"/visibility/queue.*parquet", how)
    done = tried(lambda: queue.receive(1))
    s3.fail("PUT", "nothing", "500", 0)
    assert seen(ledger, s3, queue) == ((1, 1) if done else (2, 0))


def test_a_change_of_a_queue(ledger, queue, s3, fault):
    fault("queues")
    done = tried(lambda: queue.set_attributes({"VisibilityTimeout": 7}))
    s3.fail("PUT", "nothing", "500", 0)
    other = Ledger.open(s3.root("faults"), storage_options=s3.options, engine="delta-rs").queue(queue.name)
    assert other.attributes()["VisibilityTimeout"] == ("7" if done else "600")
