"""Coefficients of the vector mathematics, as hexadecimal floats, written by tests/codegen/vecmath_fit.py.

The weighted error above a table is the largest of weight * (function - polynomial) over the interval of the fit, with
the weight that makes it relative to the result of the function (before the rounding errors of the evaluation).
"""


def _table(*values: str) -> tuple[float, ...]:
    return tuple(float.fromhex(v) for v in values)


LN2_F64 = _table(
    "0x1.62e42fefa3800p-1",
    "0x1.ef35793c76730p-45",
)
LN2_F32 = _table(
    "0x1.62e4000000000p-1",
    "0x1.7f7d1c0000000p-20",
)
LN2 = _table(
    "0x1.62e42fefa39efp-1",
)
LOG2E_F64 = _table(
    "0x1.71547652b82fep+0",
    "0x1.777d0ffda0d24p-56",
)
LOG2E_F32 = _table(
    "0x1.7154760000000p+0",
    "0x1.4ae0c00000000p-26",
)
LOG10E_F64 = _table(
    "0x1.bcb7b1526e50ep-2",
    "0x1.95355baaafad3p-57",
)
LOG10E_F32 = _table(
    "0x1.bcb7b20000000p-2",
    "-0x1.5b235e0000000p-27",
)
LOG10_2_F64 = _table(
    "0x1.34413509f7800p-2",
    "0x1.fef311f12b358p-46",
)
LOG10_2_F32 = _table(
    "0x1.3442000000000p-2",
    "-0x1.95ec100000000p-19",
)
TWICE_LN2_F32 = _table(
    "0x1.6300000000000p+0",
    "-0x1.bd01060000000p-12",
)
HALF_PI_F64 = _table(
    "0x1.921fb54442d18p+0",
    "0x1.1a62633145c07p-54",
    "-0x1.f1976b7ed8fbcp-110",
)
HALF_PI_F32 = _table(
    "0x1.921fb60000000p+0",
    "-0x1.777a5c0000000p-25",
    "-0x1.ee59da0000000p-50",
)
HALF_PI_SHORT_F64 = _table(
    "0x1.921fb54000000p+0",
    "0x1.10b4610000000p-30",
    "0x1.a626330000000p-58",
    "0x1.45c06e0e68948p-86",
)
HALF_PI_SHORT_F32 = _table(
    "0x1.9200000000000p+0",
    "0x1.fb80000000000p-12",
    "-0x1.5e00000000000p-23",
    "0x1.0b46120000000p-34",
)
THIRD_F64 = _table(
    "0x1.5555555555555p-2",
    "0x1.5555555555555p-56",
)
THIRD_F32 = _table(
    "0x1.5555560000000p-2",
    "-0x1.5555560000000p-27",
)
# 2 / pi, in 64-bit words from the point on
TWO_OVER_PI = (
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
)
# weighted error 2^-57.9
EXP_F64 = _table(
    "0x1.000000000000cp-1",
    "0x1.555555555555cp-3",
    "0x1.555555554fe07p-5",
    "0x1.111111110e9eep-7",
    "0x1.6c16c186069e7p-10",
    "0x1.a01a01b44ba88p-13",
    "0x1.a01995bc7e321p-16",
    "0x1.71ddee5f5b3d3p-19",
    "0x1.28b0f4a3f5455p-22",
    "0x1.af6ea368bb5bbp-26",
)
# weighted error 2^-28.1
EXP_F32 = _table(
    "0x1.0000000000000p-1",
    "0x1.55548a0000000p-3",
    "0x1.5554e40000000p-5",
    "0x1.123e380000000p-7",
    "0x1.6d51560000000p-10",
)
# weighted error 2^-33.2
EXP_32ND_F32 = _table(
    "0x1.00008a0000000p-1",
    "0x1.5555ca0000000p-3",
)
# weighted error 2^-33.2
EXP_HALF_F32 = _table(
    "-0x1.0000000000000p-1",
    "0x1.0000880000000p-3",
    "-0x1.5555c80000000p-6",
)
# weighted error 2^-59.4
LOG_F64 = _table(
    "0x1.5555555555594p-1",
    "0x1.999999997f6eep-2",
    "0x1.24924942423edp-2",
    "0x1.c71c51ceeacd2p-3",
    "0x1.746649e261b8dp-3",
    "0x1.39a0b1c03dbcbp-3",
    "0x1.2f0f4cbb2f684p-3",
)
# weighted error 2^-30.1
LOG_F32 = _table(
    "0x1.5555460000000p-2",
    "-0x1.00000a0000000p-2",
    "0x1.99a5460000000p-3",
    "-0x1.555ae80000000p-3",
    "0x1.232cf60000000p-3",
    "-0x1.fc4c820000000p-4",
    "0x1.e7a49e0000000p-4",
    "-0x1.dd6eae0000000p-4",
    "0x1.11d7980000000p-4",
)
# weighted error 2^-37.8
LOG_F32_WIDE = _table(
    "0x1.55555569214f1p-2",
    "-0x1.000000abc4e4ep-2",
    "0x1.9999836fd1c1ap-3",
    "-0x1.5554ad180d289p-3",
    "0x1.2495fd05e3dacp-3",
    "-0x1.001d2f0d62c9fp-3",
    "0x1.c6afe38bce5c6p-4",
    "-0x1.9508203291bc6p-4",
    "0x1.74159328d0e71p-4",
    "-0x1.7def3f3f3a0bcp-4",
    "0x1.6eec93b7e8541p-4",
    "-0x1.793812dfda425p-5",
)
# weighted error 2^-61.5
SIN_F64 = _table(
    "-0x1.5555555555555p-3",
    "0x1.11111111110ddp-7",
    "-0x1.a01a01a0170abp-13",
    "0x1.71de3a540ca76p-19",
    "-0x1.ae6455c4d2110p-26",
    "0x1.61242637ee9bfp-33",
    "-0x1.ae6928e743493p-41",
    "0x1.90a392ab8c9a1p-49",
    "-0x1.8ff5eaf500a6dp-58",
)
# weighted error 2^-30.7
SIN_F32 = _table(
    "-0x1.5555560000000p-3",
    "0x1.1111300000000p-7",
    "-0x1.a021200000000p-13",
    "0x1.726e060000000p-19",
    "-0x1.ad90ac0000000p-26",
)
# weighted error 2^-57.9
SIN_QUARTER_F64 = _table(
    "-0x1.5555555555548p-3",
    "0x1.111111110f746p-7",
    "-0x1.a01a019bed8efp-13",
    "0x1.71de355a08061p-19",
    "-0x1.ae5e4fef1869bp-26",
    "0x1.5d8cc22f00f7cp-33",
)
# weighted error 2^-27.8
SIN_QUARTER_F32 = _table(
    "-0x1.5555440000000p-3",
    "0x1.1106e20000000p-7",
    "-0x1.992ae00000000p-13",
)
# weighted error 2^-64.1
COS_QUARTER_F64 = _table(
    "0x1.555555555554bp-5",
    "-0x1.6c16c16c1503cp-10",
    "0x1.a01a019c94e22p-16",
    "-0x1.27e4f7f665b3ap-22",
    "0x1.1ee9df48e1db5p-29",
    "-0x1.8fa85587540a2p-37",
)
# weighted error 2^-33.1
COS_QUARTER_F32 = _table(
    "0x1.55554a0000000p-5",
    "-0x1.6c0c2c0000000p-10",
    "0x1.99e9cc0000000p-16",
)
# weighted error 2^-56.1
TAN_F64 = _table(
    "0x1.55555555554f0p-2",
    "0x1.11111111183f7p-3",
    "0x1.ba1ba1b4628a5p-5",
    "0x1.664f49a9c20cfp-6",
    "0x1.226e1236fd153p-7",
    "0x1.d6d938f638091p-9",
    "0x1.7d5b165b8fc65p-10",
    "0x1.37fd214bd49afp-11",
    "0x1.d24e9323913a1p-13",
    "0x1.1e7797bcbe7e8p-13",
    "-0x1.bcca65ecab940p-16",
    "0x1.77c2e91caec7fp-14",
    "-0x1.792937c69c3c3p-15",
    "0x1.5e696cf5f40d8p-16",
)
# weighted error 2^-29.4
TAN_F32 = _table(
    "0x1.5555600000000p-2",
    "0x1.110da40000000p-3",
    "0x1.bad85c0000000p-5",
    "0x1.5ccfea0000000p-6",
    "0x1.6280140000000p-7",
    "0x1.c7c6e00000000p-14",
    "0x1.1e44f80000000p-8",
)
# weighted error 2^-55.4
TANH_F64 = _table(
    "-0x1.5555555555492p-2",
    "0x1.1111111101f26p-3",
    "-0x1.ba1ba1ad06fdcp-5",
    "0x1.664f45b17dd5bp-6",
    "-0x1.226ddba69fb09p-7",
    "0x1.d6c5edcbaff44p-9",
    "-0x1.7cf20890355aap-10",
    "0x1.2f9918f74e05dp-11",
    "-0x1.b8cfd2ba545cep-13",
    "0x1.ab69c4bc685b2p-15",
)
# weighted error 2^-29.7
TANH_F32 = _table(
    "-0x1.55554a0000000p-2",
    "0x1.110cfc0000000p-3",
    "-0x1.b922680000000p-5",
    "0x1.590fce0000000p-6",
    "-0x1.9a449e0000000p-8",
)
# weighted error 2^-56.0
ERF_F64 = _table(
    "0x1.06eba8214db68p-3",
    "-0x1.812746b0379b1p-2",
    "0x1.ce2f21a04082ep-4",
    "-0x1.b82ce311eba5fp-6",
    "0x1.565bccf79918cp-8",
    "-0x1.c02db00a4932ep-11",
    "0x1.f9a2b66c1a280p-14",
    "-0x1.f4ca130bd4b37p-17",
    "0x1.b97dc7cd14904p-20",
    "-0x1.5bfb9f8386962p-23",
    "0x1.d6d1129df1c7dp-27",
    "-0x1.aadfed8c5cab7p-31",
)
# weighted error 2^-29.3
ERF_F32 = _table(
    "0x1.06eba80000000p-3",
    "-0x1.81273e0000000p-2",
    "0x1.ce2cf00000000p-4",
    "-0x1.b7f8580000000p-6",
    "0x1.53ff920000000p-8",
    "-0x1.a3c95c0000000p-11",
    "0x1.48edee0000000p-14",
)
# weighted error 2^-59.4
LOG_ERFC_F64 = _table(
    "-0x1.93b181152b784p-23",
    "-0x1.20dd54cc2e42ap+0",
    "-0x1.45f438148c5e4p-1",
    "-0x1.a4d92b511b322p-4",
    "0x1.388aa13462452p-6",
    "0x1.295e63fa38a56p-12",
    "-0x1.d0a2b65d3e31ap-10",
    "0x1.51b89b0dd41c4p-11",
    "-0x1.891774abc937fp-15",
    "-0x1.227bc95bb2c2bp-14",
    "0x1.75c0abe8b8195p-15",
    "-0x1.12414fb61c9bcp-16",
    "0x1.1f50ed9dbcf5ap-18",
    "-0x1.c36af3b772810p-21",
    "0x1.0a8c882e8913ap-23",
    "-0x1.cdb4df007b93ap-27",
    "0x1.15a284cd56410p-30",
    "-0x1.9ecf323d5ef90p-35",
    "0x1.221147b3bb963p-40",
)
# weighted error 2^-35.3
LOG_ERFC_F32 = _table(
    "0x1.918f3c0000000p-13",
    "-0x1.212d120000000p+0",
    "-0x1.4431860000000p-1",
    "-0x1.bc353c0000000p-4",
    "0x1.9d51600000000p-6",
    "-0x1.13fcfe0000000p-8",
    "0x1.d023dc0000000p-12",
    "-0x1.6da10a0000000p-16",
)
# weighted error 2^-56.8
NORMAL_F64 = _table(
    "0x1.9884533d4364fp-2",
    "-0x1.1058377e2ccdbp-4",
    "0x1.46d042974da26p-7",
    "-0x1.37403f6081fb9p-10",
    "0x1.e42b0850e85fbp-14",
    "-0x1.3ce84e7e67222p-17",
    "0x1.656dc35b7fa89p-21",
    "-0x1.5f52bbc06380dp-25",
    "0x1.10c452e3ada65p-29",
)
# weighted error 2^-28.0
NORMAL_F32 = _table(
    "0x1.9884520000000p-2",
    "-0x1.1057cc0000000p-4",
    "0x1.46b7740000000p-7",
    "-0x1.34ac020000000p-10",
    "0x1.a3ec2c0000000p-14",
)
# weighted error 2^-54.8
NORMAL_TAIL_F64 = _table(
    "0x1.82b4bb8c94dcep-2",
    "0x1.2dda040d62d08p-4",
    "-0x1.c41d6bcaf8552p-4",
    "0x1.9adc525a905a4p-4",
    "-0x1.024df8efd3255p-4",
    "0x1.b0ffe01d94388p-6",
    "-0x1.691976fa13f13p-8",
    "-0x1.e4abd38447ef3p-11",
    "0x1.ce76f67860666p-11",
    "-0x1.99ff33da3fac5p-15",
    "-0x1.e8a4d3e36f899p-14",
    "0x1.16d250fcaa7d3p-16",
    "0x1.2cd6f250139dfp-16",
    "-0x1.5daf63c86aba0p-19",
    "-0x1.b7d1f9104a213p-19",
    "0x1.b9f8b604d1baap-23",
    "0x1.5cbc1adda4aaap-21",
    "0x1.62d23bcc48e50p-25",
    "-0x1.0605c8559df9ep-23",
    "-0x1.3d041621a8ca4p-26",
    "0x1.17422fea97011p-26",
    "0x1.999b5b8b705d3p-30",
)
# weighted error 2^-24.7
NORMAL_TAIL_F32 = _table(
    "0x1.5845dc0000000p-2",
    "0x1.5d30020000000p-3",
    "-0x1.35de8e0000000p-3",
    "0x1.0c5ee60000000p-5",
    "0x1.28fcec0000000p-6",
    "-0x1.db059a0000000p-9",
    "-0x1.1e5eea0000000p-8",
    "-0x1.cebdfe0000000p-12",
    "0x1.d7482c0000000p-11",
    "0x1.b681060000000p-13",
)
# weighted error 2^-66.1
POW_F64 = _table(
    "0x1.9999999999b47p-3",
    "0x1.24924924558aep-3",
    "0x1.c71c7230380b2p-4",
    "0x1.745ce904f26f0p-4",
    "0x1.3b1f10b618996p-4",
    "0x1.0f7cd1ce7fa10p-4",
    "0x1.0e5d8b2d1a7ffp-4",
)
# weighted error 2^-36.7
POW_F32 = _table(
    "0x1.999a020000000p-3",
    "0x1.2451d20000000p-3",
    "0x1.dfbdb00000000p-4",
)
# weighted error 2^-35.2
POW_LOG1P = _table(
    "-0x1.0000000000000p-1",
    "0x1.5555560000000p-2",
    "-0x1.000a080000000p-2",
    "0x1.99949c0000000p-3",
)
