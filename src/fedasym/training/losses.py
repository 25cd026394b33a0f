"""The losses of a linear head, as functions of its outputs z: softmax cross-entropy for classes, half the squared error else.

Training needs the residual dF/dz and, for MAML, how it changes along a direction; testing needs hits and losses.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

CLASSES, VALUES = "classification", "regression"


def widened(z: Array) -> Array:
    """At least float32, for exponentials and sums."""
    return z.astype(jnp.promote_types(z.dtype, jnp.float32))


def probabilities(z: Array) -> Array:
    """The softmax. Outputs stored short are read once more, rather than their exponentials stored: traffic is what counts."""
    if z.dtype.itemsize >= 4:
        return jax.nn.softmax(z)
    return jnp.exp(widened(z) - jax.nn.logsumexp(widened(z), axis=-1, keepdims=True))


def residual(task: str, z: Array, y: Array) -> Array:
    """dF/dz: softmax(z) - onehot(y), or z - y; outputs shorter than float32 are read as float32."""
    if task == VALUES:
        return widened(z) - y
    p = probabilities(z)
    return p - jax.nn.one_hot(y, z.shape[-1], dtype=p.dtype)


def slope(task: str, z: Array, u: Array) -> Array:
    """D residual(z + t u)/dt at t = 0: the exact Hessian's part."""
    u = widened(u)
    if task == VALUES:
        return u
    p = probabilities(z)
    return p * (u - (p * u).sum(-1, keepdims=True))


def difference(task: str, z: Array, u: Array, delta: Array) -> Array:
    """[residual(z + delta u) - residual(z - delta u)] / (2 delta), without the cancellation that ruins it in float32.

    With p = softmax(z), a = expm1(delta u), b = expm1(-delta u), A = sum p a and B = sum p b, the two softmaxes are
    p (1 + a)/(1 + A) and p (1 + b)/(1 + B): they differ from p by p (a - A)/(1 + A) and p (b - B)/(1 + B), of opposite signs.
    """
    u = widened(u)
    if task == VALUES:
        return u
    p = probabilities(z)
    u = u - (p * u).sum(-1, keepdims=True)  # softmax ignores a shift; centred, the exponents are smallest, and A, B >= 0
    largest = jnp.abs(u).max(-1, keepdims=True)
    most = 0.9 * math.log(float(np.finfo(p.dtype).max))  # beyond, exp overflows, and the softmaxes have settled
    step = jnp.minimum(delta, most / jnp.maximum(largest, 1e-30))
    grown = jnp.expm1(step * jnp.abs(u))
    shrunk = -grown / (1 + grown)  # expm1(-step |u|)
    a, b = jnp.where(u > 0, grown, shrunk), jnp.where(u > 0, shrunk, grown)
    A, B = (p * a).sum(-1, keepdims=True), (p * b).sum(-1, keepdims=True)
    return p * ((a - A) / (1 + A) - (b - B) / (1 + B)) / (2 * delta)


def score(task: str, z: Array, y: Array) -> tuple[Array, Array]:
    """Whether the prediction is right (NaN for values, and where the outputs are not finite), and the loss, per row."""
    if task == VALUES:
        squared = ((z - y) ** 2).sum(-1) / 2
        return jnp.full_like(squared, jnp.nan), squared
    hit = (z.argmax(-1) == y).astype(z.dtype)
    loss = jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]
    return jnp.where(jnp.isfinite(loss), hit, jnp.nan), loss
