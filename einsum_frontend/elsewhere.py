"""What other languages and libraries call the functions of the notation, and how what has no function here is written."""

from __future__ import annotations

from polyker.ir.functions import TABLE

# Modules whose functions are written `np.exp(x)`.
MODULES = (
    "numpy", "np", "jnp", "jax.numpy", "jax.nn", "cupy", "cp", "torch", "torch.special", "torch.nn.functional", "F", "nn", "math",
    "cmath", "scipy.special", "special", "tf", "tf.math", "tf.nn", "mx", "mx.nd", "mlx.core", "keras.ops", "ops", "tl", "tl.math",
    "te", "tvm.te", "topi", "std",
)  # fmt: skip

# The functions of the notation by their names elsewhere, and its reductions.
RENAMED = {
    **{alias: f.name for f in TABLE.values() for alias in f.aliases},
    "amax": "max", "amin": "min", "average": "mean", "avg": "mean", "product": "prod",
}  # fmt: skip

# By their arguments: {0} is the first.
WRITTEN = {
    ("pow", 2): "{0} ** {1}", ("power", 2): "{0} ** {1}", ("float_power", 2): "{0} ** {1}", ("square", 1): "{0} ** 2",
    ("bitwise_and", 2): "{0} & {1}", ("bitwise_or", 2): "{0} | {1}", ("bitwise_xor", 2): "{0} ^ {1}", ("bitwise_not", 1): "~{0}",
    ("invert", 1): "~{0}", ("left_shift", 2): "{0} << {1}", ("right_shift", 2): "{0} >> {1}", ("logical_and", 2): "{0} and {1}",
    ("logical_or", 2): "{0} or {1}", ("logical_not", 1): "not {0}",
    ("cube", 1): "{0} ** 3", ("reciprocal", 1): "1 / {0}", ("add", 2): "{0} + {1}", ("subtract", 2): "{0} - {1}",
    ("sub", 2): "{0} - {1}", ("multiply", 2): "{0} * {1}", ("mul", 2): "{0} * {1}", ("divide", 2): "{0} / {1}",
    ("div", 2): "{0} / {1}", ("true_divide", 2): "{0} / {1}", ("floor_divide", 2): "{0} // {1}", ("mod", 2): "{0} % {1}",
    ("remainder", 2): "{0} % {1}", ("negative", 1): "-{0}", ("neg", 1): "-{0}", ("exp10", 1): "10 ** {0}",
    ("ldexp", 2): "{0} * exp2({1})", ("logaddexp", 2): "{0} + softplus({1} - {0})", ("log_sigmoid", 1): "-softplus(-{0})",
    ("logsigmoid", 1): "-softplus(-{0})", ("logit", 1): "log({0} / (1 - {0}))", ("mish", 1): "{0} * tanh(softplus({0}))",
    ("gamma", 1): "exp(lgamma({0}))", ("tgamma", 1): "exp(lgamma({0}))", ("factorial", 1): "exp(lgamma({0} + 1))",
    ("erfcinv", 1): "erfinv(1 - {0})", ("ndtr", 1): "erfc(-{0} / sqrt(2)) / 2", ("signbit", 1): "copysign(1, {0}) < 0",
    ("ndtri", 1): "sqrt(2) * erfinv(2 * {0} - 1)", ("nan_to_num", 1): "where(isnan({0}), 0, {0})",
    ("isposinf", 1): "{0} == inf", ("isneginf", 1): "{0} == -inf", ("hardtanh", 1): "clip({0}, -1, 1)",
    ("elu", 1): "where({0} > 0, {0}, expm1({0}))", ("leaky_relu", 1): "where({0} > 0, {0}, 0.01 * {0})",
    ("leaky_relu", 2): "where({0} > 0, {0}, {1} * {0})", ("relu6", 1): "clip({0}, 0, 6)",
    ("heaviside", 2): "where({0} > 0, 1, where({0} < 0, 0, {1}))", ("equal", 2): "{0} == {1}",
    ("not_equal", 2): "{0} != {1}", ("less", 2): "{0} < {1}", ("less_equal", 2): "{0} <= {1}", ("greater", 2): "{0} > {1}",
    ("greater_equal", 2): "{0} >= {1}", ("radians", 1): "{0} * pi / 180", ("deg2rad", 1): "{0} * pi / 180",
    ("degrees", 1): "{0} * 180 / pi", ("rad2deg", 1): "{0} * 180 / pi", ("max", 2): "maximum({0}, {1})",
    ("min", 2): "minimum({0}, {1})", ("range", 1): "0:{0}", ("range", 2): "{0}:{1}", ("arange", 1): "0:{0}",
    ("range", 3): "{0}:{1}:{2}", ("cast", 2): "{1}({0})", ("astype", 2): "{1}({0})",
}  # fmt: skip

# Of `name[{i}]({0})`: {0} is what stands in the brackets, {1} and {2} the same with new indices {j} and {k} for {i}.
OVER_INDEX = {
    "softmax": "exp({0} - max[{j}]({1})) / sum[{j}](exp({1} - max[{k}]({2})))",
    "log_softmax": "{0} - logsumexp[{j}]({1})",
    "var": "mean[{i}](({0} - mean[{j}]({1})) ** 2)",
    "std": "sqrt(mean[{i}](({0} - mean[{j}]({1})) ** 2))",
    "norm": "sqrt(sum[{i}](({0}) ** 2))",
    "count_nonzero": "sum[{i}](where({0} != 0, 1, 0))",
    "dot": "sum[{i}]({0})",
}
