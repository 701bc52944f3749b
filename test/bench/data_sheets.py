#!/usr/bin/env python3
"""Writes the vDevices that nobody has measured: compiler/ir/vdevices/NAME.json from the GPU's data sheet and from a similar vDevice, the model.
A file has what differs from the model, which it is `like`.

    data_sheets.py [--check]      # --check: exit code 1 if a file is not what would be written

The data sheet gives the SMs, the boost clock, the size of L2 and the memory's bandwidth. The rest is scaled from the model vDevice: times in
microseconds with the clocks; rates and L2's bandwidth with SMs times clock (times `lanes` of fp32 per SM, times `tensor`); the bandwidth of memory
with the data sheets' bandwidths. Numbers have three digits. docs/vdevices.md says so, too. None of this was checked on the GPU.
"""
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "compiler" / "ir" / "vdevices"
MB = 1 << 20

# Data sheet of the vDevices that others are made from: SMs and clock as in their files, memory in GB/s, lanes of fp32 an SM.
MODELS = {"h200": (4800, 128), "a100": (1555, 64), "rtx4090": (1008, 128), "rtx5090": (1792, 128)}

# name: product, like, arch, SMs, boost GHz, L2 bytes, memory GB/s, lanes, tensor, names of nvidia-smi. `tensor`: rate of
# tensor cores per SM and clock, divided by the model's; GeForce adds in fp32 at half the rate of the others. B200: its rate of mma.sync is taken
# to be Hopper's.
GPUS = {
    "h200nvl": ("NVIDIA H200 NVL", "h200", "sm_90a", 132, 1.785, 50 * MB, 4800, 128, 1, ["H200 NVL*"]),
    "h100": ("NVIDIA H100 SXM", "h200", "sm_90a", 132, 1.98, 50 * MB, 3350, 128, 1, ["H100*"]),
    "h100pcie": ("NVIDIA H100 PCIe", "h200", "sm_90a", 114, 1.755, 50 * MB, 2039, 128, 1, ["H100 PCIe*"]),
    "b200": ("NVIDIA B200", "h200", "sm_100a", 148, 1.965, 132644864, 7680, 128, 1, ["B200*", "GB200*"]),
    "a30": ("NVIDIA A30", "a100", "sm_80", 56, 1.44, 24 * MB, 933, 64, 1, ["A30"]),
    "a10": ("NVIDIA A10", "rtx4090", "sm_86", 72, 1.695, 6 * MB, 600, 128, 2, ["A10", "A10G"]),
    "l40s": ("NVIDIA L40S", "rtx4090", "sm_89", 142, 2.52, 96 * MB, 864, 128, 2, ["L40S"]),
    "l4": ("NVIDIA L4", "rtx4090", "sm_89", 58, 2.04, 48 * MB, 300, 128, 2, ["L4"]),
    "rtxpro6000": ("NVIDIA RTX PRO 6000 Blackwell, workstation", "rtx5090", "sm_120", 188, 2.617, 128 * MB, 1792, 128, 2, ["RTX PRO 6000 Blackwell*"]),
    "rtxa6000": ("NVIDIA RTX A6000", "rtx4090", "sm_86", 84, 1.8, 6 * MB, 768, 128, 2, ["RTX A6000"]),
    "rtx3090": ("NVIDIA GeForce RTX 3090", "rtx4090", "sm_86", 82, 1.695, 6 * MB, 936, 128, 1, ["RTX 3090", "RTX 3090 Ti"]),
    # Boards of this family do not report which they are, so no name selects this vDevice.
    "agxorin": ("NVIDIA Jetson AGX Orin 64 GB", "a100", "sm_87", 16, 1.3, 4 * MB, 204.8, 128, 1, []),
}


GROUPS = 8  # of SMs, on each of these GPUs; a cluster lies within one


def sms_in_clusters(sms):
    """How many SMs clusters of four have at least. Which SMs are switched off differs from GPU to GPU, two by two, so a group has two too many at most."""
    return sms - 2 * (GROUPS - (sms // 2 - GROUPS) % 2)


def three_digits(value):
    rounded = float(f"{value:.3g}")
    return int(rounded) if rounded == int(rounded) else rounded


def vdevice(name):
    product, like, arch, sms, clock, l2_bytes, memory, lanes, tensor, gpus = GPUS[name]
    model = json.loads((FOLDER / f"{like}.json").read_text())
    model_memory, model_lanes = MODELS[like]
    size = sms * clock / (model["sms"] * model["clock_ghz"])
    scales = {"fp32_tflops": size * lanes / model_lanes, "tf32_tflops": size * tensor, "fp16_tflops": size * tensor, "l2_gb_per_s": size,
              "dram_gb_per_s": memory / model_memory, "launch_us": 1}
    own = {"name": name, "description": f"{product}; costs scaled from the data sheet and the {like}, unchecked", "like": like, "arch": arch, "gpus": gpus, "sms": sms}
    if not gpus:
        del own["gpus"]
    given = {"clock_ghz": clock, "l2_bytes": l2_bytes, "sms_in_clusters": sms_in_clusters(sms)}
    for key, value in model.items():
        if key in own or key in ("costs", "gpus"):
            continue
        by = scales.get(key, model["clock_ghz"] / clock if key.endswith("_us") else None)
        made = given[key] if key in given else value if by is None else three_digits(value * by)
        if arch != "sm_90a" and key in ("sms_in_clusters", "input_stages_in_clusters"):  # nobody knows how the SMs of others are grouped
            made = 0
        if made != value:
            own[key] = made
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in own.items()) + "\n}\n"


def main():
    wrong = []
    for name in GPUS:
        path, text = FOLDER / f"{name}.json", vdevice(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(name)
    for name in wrong:
        print(f"{name}.json: is not what data_sheets.py makes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
