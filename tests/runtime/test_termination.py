"""What a worker says when Spark's JVM is gone under it."""

import socket

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
