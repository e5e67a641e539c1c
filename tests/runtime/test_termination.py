"""What a worker says when Spark's JVM is gone under it, and how SIGTERM ends it."""

import signal
import socket
import subprocess
import sys

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from ledger.runtime.termination import has_jvm_ended


def error_of(call):
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


@pytest.fixture
def nobody():
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_jvm_that_does_not_answer_has_ended(nobody):
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=nobody))
    assert has_jvm_ended(error_of(lambda: gateway.jvm.System.currentTimeMillis()))


def test_a_service_of_the_users_own_that_refuses_a_connection_is_no_jvm(nobody):
    assert not has_jvm_ended(error_of(lambda: socket.create_connection(("127.0.0.1", nobody), 1)))
    assert not has_jvm_ended(ValueError("org does not exist in the JVM"))


def test_a_second_sigterm_does_not_stop_what_the_first_one_began():
    """The kernel sends one for each thread of a parent that is killed."""
    code = """
import os, signal, sys, time
from ledger.runtime.termination import ended_by_sigterm
with ended_by_sigterm():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        print("released")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (128 + signal.SIGTERM, "released\n")


SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])


@SIGNALS
def test_a_third_signal_does_not_stop_what_the_second_one_began(number):
    code = """
import os, sys, time
from ledger.runtime.termination import draining
def tell_twice():
    for _ in range(2):
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(0.1)
with draining() as drain:
    try:
        tell_twice()
    except BaseException:
        try:
            raise OSError("a release that tries again")
        except OSError:
            tell_twice()
            print("released")
        raise
"""
    run = subprocess.run([sys.executable, "-c", code, str(number)], capture_output=True, text=True, check=False)
    assert run.returncode == (128 + number if number == signal.SIGTERM else -number)
    assert run.stdout == "released\n"


@SIGNALS
def test_signals_that_come_together_begin_a_drain_as_one_does(number):
    code = """
import os, sys
from ledger.runtime.termination import draining
with draining() as drain:
    for _ in range(3):
        os.kill(os.getpid(), int(sys.argv[1]))
    print("drains", drain.asked)
    drain.end()
"""
    run = subprocess.run([sys.executable, "-c", code, str(number)], capture_output=True, text=True, check=False)
    assert run.returncode == (128 + number if number == signal.SIGTERM else -number)
    assert run.stdout == f"drains {int(number)}\n"
