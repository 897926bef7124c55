# SPDX-License-Identifier: Apache-2.0
"""As much of torch as LeRobot's inference shows its caller, over NumPy."""

import contextlib

import numpy as np

SEEDS = []
uint8, float32 = np.uint8, np.float32


class Tensor:
    def __init__(self, array):
        self.array = np.asarray(array)

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)

    def __getitem__(self, index):
        return Tensor(self.array[index])

    def unsqueeze(self, dim):
        return Tensor(np.expand_dims(self.array, dim))

    def permute(self, *dims):
        return Tensor(self.array.transpose(dims))

    def type(self, dtype):
        return Tensor(self.array.astype(dtype))

    def __truediv__(self, other):
        return Tensor((self.array / other).astype(np.float32))

    def to(self, device):
        return self

    contiguous = detach = cpu = lambda self: self

    def float(self):
        return Tensor(self.array.astype(np.float32))

    def numpy(self):
        return self.array


def from_numpy(array):
    assert array.flags.c_contiguous
    return Tensor(array)


def device(name):
    return name


def inference_mode():
    return contextlib.nullcontext()


def manual_seed(seed):
    SEEDS.append(seed)
