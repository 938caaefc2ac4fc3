"""Coefficients of inverse and special functions, written by tests/codegen/vecmath_fit_special.py.

The weighted error is as in tables.py. The tables of lgamma and digamma in f32 are for f64, in which these are computed.
"""


def _table(*values: str) -> tuple[float, ...]:
    return tuple(float.fromhex(v) for v in values)


PI_F64 = _table(
    "0x1.921fb54442d18p+1",
    "0x1.1a62633145c07p-53",
)
PI_F32 = _table(
    "0x1.921fb60000000p+1",
    "-0x1.777a5c0000000p-24",
)
PSI_ZERO = _table(
    "0x1.762d86356be3fp+0",
    "0x1.b86a722197829p-54",
)
CBRT_2 = _table(
    "0x1.428a2f98d728bp+0",
)
HALF_LOG_2PI = _table(
    "0x1.d67f1c864beb5p-1",
    "-0x1.65b5a1b7ff5dfp-55",
)
# weighted error 2^-11.7
CBRT = _table(
    "0x1.ba18da0000000p+0",
    "-0x1.46461e0000000p+0",
    "0x1.67b2340000000p-1",
    "-0x1.3dc7060000000p-3",
)
# weighted error 2^-59.8
ASIN_F64 = _table(
    "0x1.5555555555576p-3",
    "0x1.333333332e3cdp-4",
    "0x1.6db6db71f042dp-5",
    "0x1.f1c71aa268624p-6",
    "0x1.6e8bdd59f3cecp-6",
    "0x1.1c4a0c33dcb7ep-6",
    "0x1.ca1cec27f0751p-7",
    "0x1.759b222ddbf0ep-7",
    "0x1.60c37c53569f8p-7",
    "0x1.ed16b9d7001d8p-9",
    "0x1.61736be6b58eap-6",
    "-0x1.54f2adff088c8p-6",
    "0x1.0a5498ba841a0p-5",
)
# weighted error 2^-31.7
ASIN_F32 = _table(
    "0x1.55554c0000000p-3",
    "0x1.3338960000000p-4",
    "0x1.6cac820000000p-5",
    "0x1.049d6a0000000p-5",
    "0x1.d8b82a0000000p-7",
    "0x1.3367dc0000000p-5",
)
# weighted error 2^-63.8
ATAN_EIGHTH_F64 = _table(
    "-0x1.5555555555554p-2",
    "0x1.99999999995b9p-3",
    "-0x1.2492492471d91p-3",
    "0x1.c71c71b5d4454p-4",
    "-0x1.745d148c27e96p-4",
    "0x1.3b136aa009840p-4",
    "-0x1.110c43bf0f5f4p-4",
    "0x1.e16ebb8595731p-5",
    "-0x1.ab6a3a338b54ep-5",
    "0x1.70a4e8a7c3767p-5",
    "-0x1.119b27f2476f8p-5",
    "0x1.ef964d9fe8bf5p-7",
)
# weighted error 2^-30.3
ATAN_EIGHTH_F32 = _table(
    "-0x1.5555480000000p-2",
    "0x1.9991260000000p-3",
    "-0x1.23ae220000000p-3",
    "0x1.b191260000000p-4",
    "-0x1.f04e2a0000000p-5",
)
# weighted error 2^-59.4
ATANH_F64 = _table(
    "0x1.5555555555594p-2",
    "0x1.999999997f6eep-3",
    "0x1.24924942423edp-3",
    "0x1.c71c51ceeacd2p-4",
    "0x1.746649e261b8dp-4",
    "0x1.39a0b1c03dbcbp-4",
    "0x1.2f0f4cbb2f684p-4",
)
# weighted error 2^-30.2
ATANH_F32 = _table(
    "0x1.55557a0000000p-2",
    "0x1.995ed60000000p-3",
    "0x1.31e09e0000000p-3",
)
# weighted error 2^-58.5
ERFC_F64 = _table(
    "-0x1.4fe731b075ac9p-5",
    "-0x1.0720069d944c6p-3",
    "0x1.8ebb93ae4c4fcp-3",
    "-0x1.7a3c537e15ea1p-3",
    "0x1.16d42b9b699e0p-3",
    "-0x1.4e552ccd74a9dp-4",
    "0x1.453b6cde96ffdp-5",
    "-0x1.ecb79e9b0c885p-7",
    "0x1.ff9d1d14c4585p-9",
    "-0x1.59180962b1cadp-12",
    "-0x1.008c479b2a3bdp-12",
    "0x1.e2345ccef592bp-14",
    "-0x1.005512021dff8p-17",
    "-0x1.75a9f04aa7decp-17",
    "0x1.cfd19151a548fp-19",
    "0x1.850fa59cf7985p-21",
    "-0x1.34ea9bde008bfp-21",
    "-0x1.57329c0a5d724p-26",
    "0x1.615c8dce8a351p-24",
    "-0x1.c706b5af76008p-29",
    "-0x1.6d78777f093e4p-27",
    "0x1.09ffb8b27ec14p-31",
    "0x1.f0711515fa545p-31",
)
# weighted error 2^-29.7
ERFC_F32 = _table(
    "-0x1.fbb24e0000000p-7",
    "-0x1.579d560000000p-3",
    "0x1.8c4ed20000000p-3",
    "-0x1.1208160000000p-3",
    "0x1.fe18280000000p-5",
    "-0x1.18c69c0000000p-6",
    "0x1.7c5af20000000p-12",
    "0x1.c1ab640000000p-10",
    "-0x1.a1f7c60000000p-12",
    "-0x1.3ddb040000000p-13",
    "0x1.a84b800000000p-16",
)
# weighted error 2^-54.4
ERFINV_F64 = _table(
    "0x1.805c5cfcedef5p+0",
    "0x1.f91e8993f0d14p-3",
    "-0x1.11c3c302e030ep-8",
    "-0x1.4863cdfb6163bp-10",
    "0x1.c9b437ed59910p-13",
    "-0x1.4f47fe734aa3cp-18",
    "-0x1.ca9227e572974p-19",
    "0x1.01037e3dc8de3p-21",
    "0x1.ccff95e203d3bp-27",
    "-0x1.752fdbf6b0fb3p-27",
    "0x1.f2c9fa24ff451p-31",
    "0x1.07050c38d3efcp-33",
    "-0x1.11878df4525aap-35",
    "0x1.0084d3fdd7c65p-40",
    "0x1.2c58eba879311p-41",
    "-0x1.568ec1a5199dep-44",
    "-0x1.57b0d03d65c65p-49",
    "0x1.0faff0b9bc267p-49",
    "-0x1.eeea75eec9f7ep-53",
    "-0x1.d6cfdedfcfb64p-56",
    "0x1.d6bd6099ef639p-57",
    "0x1.95a3b1a91fcc7p-64",
    "-0x1.367efe1786758p-61",
    "0x1.6415f9c1a0c3ep-69",
    "0x1.ba86c08d5ba34p-67",
)
# weighted error 2^-24.6
ERFINV_F32 = _table(
    "0x1.805c5c0000000p+0",
    "0x1.f91e860000000p-3",
    "-0x1.11c0a80000000p-8",
    "-0x1.485e960000000p-10",
    "0x1.c95e6e0000000p-13",
    "-0x1.53c22c0000000p-18",
    "-0x1.c34c420000000p-19",
    "0x1.0dc9380000000p-21",
    "0x1.ad7a5a0000000p-28",
    "-0x1.f60f840000000p-27",
    "0x1.1bd1340000000p-30",
    "0x1.74e16c0000000p-32",
)
# weighted error 2^-54.6
ERFINV_TAIL_F64 = _table(
    "0x1.fb6355e7f41e2p+1",
    "0x1.028006401440cp+0",
    "0x1.fa9f1eafe30bep-11",
    "-0x1.7d326731e008dp-11",
    "0x1.0fd89a4cace2cp-12",
    "-0x1.663999773affep-14",
    "0x1.1fd178b666989p-15",
    "-0x1.34486ef3d3595p-16",
    "0x1.6880a42efb330p-17",
    "-0x1.7785aedd629eap-18",
    "0x1.32b066b4aeeb6p-19",
    "-0x1.40ced8b408cbdp-21",
    "-0x1.e98d4a4be28b5p-28",
    "0x1.c3f46b733b09ap-24",
    "-0x1.05e77b79c1e08p-24",
    "0x1.397448ae918b9p-26",
    "-0x1.2c213176a5352p-30",
    "-0x1.ef05a425893d1p-30",
    "0x1.0f490e1085efep-30",
    "-0x1.29d5af32474c5p-32",
    "0x1.0e99bf699ea32p-36",
    "0x1.269cf6733a969p-35",
    "-0x1.0cd82f197ec7fp-36",
    "-0x1.fdd0d1ebcad77p-40",
    "0x1.1233a26acf764p-39",
    "0x1.9ee5ab811a866p-41",
    "-0x1.d722aedf09490p-42",
    "-0x1.31b2fbe9f62ddp-43",
    "0x1.485ab8b73b5b9p-44",
    "0x1.5fae898fedcc2p-47",
    "-0x1.c1ddd5efec8afp-48",
    "-0x1.1afe6189579aap-52",
    "0x1.e46bf891bc91fp-53",
)
# weighted error 2^-26.0
ERFINV_TAIL_F32 = _table(
    "0x1.79c4040000000p+1",
    "0x1.00ed300000000p+0",
    "0x1.d557200000000p-8",
    "-0x1.6264800000000p-8",
    "0x1.fbbaf00000000p-9",
    "-0x1.5200240000000p-9",
    "0x1.5783cc0000000p-10",
    "-0x1.44ad840000000p-12",
    "-0x1.42996a0000000p-13",
    "0x1.0c67060000000p-13",
    "-0x1.0c80da0000000p-16",
    "-0x1.65a83c0000000p-21",
)
# weighted error 2^-56.2
LGAMMA_F64 = _table(
    "0x1.b0ee6072093cep-2",
    "-0x1.9ae6509ea109fp-4",
    "0x1.0e0c9df2935f5p-5",
    "-0x1.95ce223a9cd81p-7",
    "0x1.4797485393800p-8",
    "-0x1.145121f9853bap-9",
    "0x1.dfebcf9fc04eap-11",
    "-0x1.a96a402272512p-12",
    "0x1.7ed7302f4a652p-13",
    "-0x1.5c86b2d875ef1p-14",
    "0x1.402f7d4080415p-15",
    "-0x1.2850bfe8e0ba3p-16",
    "0x1.13db86f5d3d9fp-17",
    "-0x1.0227f80f73ce4p-18",
    "0x1.e64526ebd78adp-20",
    "-0x1.cad5bb3226b33p-21",
    "0x1.a8df8aba99025p-22",
    "-0x1.930cd5120ab50p-23",
    "0x1.c0abb51aaa2aep-24",
    "-0x1.adc8f5d2d7f35p-25",
    "0x1.865b3493b012fp-28",
    "-0x1.5e3c7d2846750p-29",
    "0x1.187cc673f744dp-26",
    "-0x1.1107b64e6fb1ep-27",
    "-0x1.2b6790ae5b821p-28",
    "0x1.2532f067afdb1p-29",
    "0x1.b2a96a8d8ecf4p-30",
    "-0x1.a6d007a97c710p-31",
)
# weighted error 2^-31.1
LGAMMA_F32 = _table(
    "0x1.b0ee607207ea2p-2",
    "-0x1.9ae65127468f6p-4",
    "0x1.0e0c9e790a901p-5",
    "-0x1.95cd83eeff8f0p-7",
    "0x1.4796af56c1052p-8",
    "-0x1.146b6d13faa48p-9",
    "0x1.e01e4f42423c1p-11",
    "-0x1.a59b9aca80008p-12",
    "0x1.7b327c215eb36p-13",
    "-0x1.80198567a7557p-14",
    "0x1.6225fcb872330p-15",
    "-0x1.f138ff6ccd478p-18",
    "0x1.bfdd850ca7eb8p-19",
    "-0x1.4368620b62404p-17",
    "0x1.322919afae211p-18",
)
# weighted error 2^-60.7
LGAMMA_FAR_F64 = _table(
    "-0x1.5555555555481p-5",
    "0x1.3e93e93d3a87bp-9",
    "-0x1.93192e49ff83bp-11",
    "0x1.35a24b899e761p-11",
    "-0x1.b83fa020690b8p-11",
    "0x1.f2db4c3aa3691p-10",
    "-0x1.8e5f0f3de52c9p-8",
    "0x1.8129d935b3db4p-6",
    "-0x1.796dcc97f6628p-4",
    "0x1.3ea379824c6ecp-2",
    "-0x1.9309c8f33bccdp-1",
    "0x1.4635095fefbdbp+0",
    "-0x1.f129cb5ebc11ap-1",
)
# weighted error 2^-32.5
LGAMMA_FAR_F32 = _table(
    "-0x1.5555449bcde84p-5",
    "0x1.3e5e4809830c2p-9",
    "-0x1.8445bf62b7c5dp-11",
    "0x1.8160a6c872fdap-12",
)
# weighted error 2^-61.7
SINE_PI = _table(
    "0x1.0000000000000p+0",
    "-0x1.a51a6625307d3p+0",
    "0x1.9f9cb402bc42ep-1",
    "-0x1.86a8e4720a5fdp-3",
    "0x1.ac6805ccb2a12p-6",
    "-0x1.338169a445116p-9",
    "0x1.3746a5921b90fp-13",
    "-0x1.d3e7f7c060054p-18",
    "0x1.0759b9ce9109bp-22",
)
# weighted error 2^-54.7
DIGAMMA_F64 = _table(
    "0x1.ef72bc8ee38acp-1",
    "-0x1.c563b54aa1a36p-2",
    "0x1.08b4294d5029bp-2",
    "-0x1.4fc1317257c30p-3",
    "0x1.b9a5b63728439p-4",
    "-0x1.27baba26328d9p-4",
    "0x1.8fce02a822e5fp-5",
    "-0x1.0fa7ec2cdd7c5p-5",
    "0x1.723d6a4a3d5fep-6",
    "-0x1.f970557e1efeep-7",
    "0x1.59557bc131329p-7",
    "-0x1.d827457d31cb3p-8",
    "0x1.42e88b7d63249p-8",
    "-0x1.b9c2c13af7965p-9",
    "0x1.2dc04e13b98bcp-9",
    "-0x1.9c2ec5e5b6984p-10",
    "0x1.1e528001f6b2dp-10",
    "-0x1.8f778e8a89127p-11",
    "0x1.ec48b32239177p-12",
    "-0x1.1a9cd4144c589p-12",
    "0x1.22b598665c956p-12",
    "-0x1.320ee945630c8p-12",
    "0x1.0a615a8127434p-13",
)
# weighted error 2^-30.3
DIGAMMA_F32 = _table(
    "0x1.ef72bc8bff821p-1",
    "-0x1.c563b6158c868p-2",
    "0x1.08b4308b18738p-2",
    "-0x1.4fc0a34481e98p-3",
    "0x1.b99fc0455bb3ap-4",
    "-0x1.27d59f15e0663p-4",
    "0x1.90b5734d29eb8p-5",
    "-0x1.0db77fe871438p-5",
    "0x1.6268f82bcb857p-6",
    "-0x1.0974b0bff4aa4p-6",
    "0x1.d5fe4645783e6p-7",
    "-0x1.e518b7f974ae5p-8",
)
# weighted error 2^-57.8
DIGAMMA_FAR_F64 = _table(
    "0x1.3f3a5dad1af26p-5",
    "0x1.2cbe985555e04p-7",
    "-0x1.b67bb6ae55ab6p-7",
    "0x1.82dda8357d160p-7",
    "-0x1.e5585547d183fp-8",
    "0x1.b95b835aaca80p-9",
    "-0x1.e11f8bb0bb042p-11",
    "-0x1.e0a76b99edf87p-13",
    "0x1.5d23f60e5965dp-11",
    "-0x1.926fc42c3d045p-11",
    "0x1.76aef25d4cffcp-11",
    "-0x1.356661b925736p-11",
    "0x1.c544659dde379p-12",
    "-0x1.1ac602c6cb09cp-12",
    "0x1.1a08459aaba1ep-13",
    "-0x1.9cbc9f9f5e754p-15",
    "0x1.839a0be44dad7p-17",
    "-0x1.5aa7ba69bbe5ep-20",
)
# weighted error 2^-36.5
DIGAMMA_FAR_F32 = _table(
    "0x1.3f3a5dad961bdp-5",
    "0x1.2cbe96a8a9e05p-7",
    "-0x1.b67b8d2ce3030p-7",
    "0x1.82ddd928d38ccp-7",
    "-0x1.e595695a2ec32p-8",
    "0x1.be00d98cc8a40p-9",
    "-0x1.1a54553b50876p-10",
    "0x1.788eaf3e975ddp-13",
)
# weighted error 2^-53.9
COTANGENT_PI = _table(
    "0x1.a51a6625307d3p+1",
    "0x1.151322ac7d8a7p+1",
    "0x1.0470984c04606p+1",
    "0x1.010b36b152c81p+1",
    "0x1.00412dd077dedp+1",
    "0x1.00102e324001bp+1",
    "0x1.0002c2edaf3b4p+1",
    "0x1.0015e5a439127p+1",
    "0x1.fe085882d1225p+0",
    "0x1.08b5de8474b97p+1",
    "0x1.8e9445f9fcc13p+0",
    "0x1.06f691f68e1cdp+2",
    "-0x1.4c1f8a8935176p+2",
    "0x1.2d55c7ccdac8dp+4",
    "-0x1.6d8451358fe49p+4",
    "0x1.4b193aff39309p+4",
)
