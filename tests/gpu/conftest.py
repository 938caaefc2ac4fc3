"""Fixtures of the tests of the CUDA back end."""

from tests.gpu.device import device as device
from tests.gpu.device import library as library
from tests.gpu.run_time import card as card
from tests.gpu.stub.control import stub as stub
