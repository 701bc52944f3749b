#!/usr/bin/env python3
"""Times quantised networks on a GPU beside the same networks in floats, in one run.

    python3 test/gpu/quantised.py --tamp build/release/bin/tamp [--batches 1,32] [--forms qdq,qdq_s8] [--vdevice h200] [--out results.json] NAME...

NAME is a network of test/gpu/export.py (resnet50, efficientnet_b0, ..) or of export_hf.py (bert, vit, ..: of two layers, or --layers N). onnxruntime.quantization makes its
quantised forms: qdq (activations u8, weights s8 per channel), qdq_s8 (both s8), dynamic. Each form and the floats are compiled in fp16 for each batch, whose
images are all the same. Answers come before times: floats as in measure.py; quantised answers are compared with ONNX Runtime's of the quantised model,
without its optimisations. Where a rounding falls otherwise (ties; what fp16 rounds in front of it) a number moves by a step of the quantisation, and deep
networks of random weights make much of that. So the limit is twice what ONNX Runtime's own answers move by, at most, with its optimisations or with inputs
that are changed by 2^-11 of themselves, as fp16 would round them. (`tamp run MODEL --check --each` compares rOperator by rOperator.)
Times are the median of back-to-back replays of a CUDA graph (`train` of the runner), in us."""
import argparse, concurrent.futures, json, logging, pathlib, shutil, statistics, subprocess, sys, tempfile

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization

import measure

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = ["bert", "distilbert", "roberta", "clip_text", "vit", "dinov2"]
CALIBRATED, TRIALS = 3, 4


class Reader(quantization.CalibrationDataReader):
    """The network's own input, and others like it."""

    def __init__(self, given):
        random = np.random.default_rng(3)
        like = lambda x: random.standard_normal(x.shape).astype(x.dtype) if x.dtype.kind == "f" else x
        self.left = iter([given] + [{name: like(x) for name, x in given.items()} for _ in range(CALIBRATED - 1)])

    def get_next(self):
        return next(self.left, None)


def answers(path, given, optimises=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimises:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def distance(found, right):
    flat = lambda values: np.concatenate([value.astype(np.float64).ravel() for value in values])
    return float(np.linalg.norm(flat(found) - flat(right)) / np.linalg.norm(flat(right)))


def changed(given, trial):
    """Inputs whose floats are changed by up to 2^-11 of themselves; integers (words) stay, so of them nothing moves."""
    random = np.random.default_rng(trial)
    return {name: x * (1 + random.uniform(-1, 1, x.shape) * 2.0 ** -11).astype(x.dtype) if x.dtype.kind == "f" else x for name, x in given.items()}


def make(folder, name, forms, layers):
    """The files of measure.py for the network and its forms; -> the name of each."""
    script = "export_hf.py" if name in TRANSFORMERS else "export.py"
    measure.timed([sys.executable, HERE / script, folder, name, *(["--layers", str(layers)] if name in TRANSFORMERS else [])], limit_s=300)
    path, given = folder / f"{name}.onnx", dict(np.load(folder / f"{name}.inputs.npz"))
    meta = json.loads((folder / f"{name}.weights.json").read_text())
    made = {"float": name}
    for form in forms:
        to = folder / f"{name}_{form}.onnx"
        if form == "dynamic":
            quantization.quantize_dynamic(path, to, weight_type=quantization.QuantType.QInt8)
        else:
            activations = quantization.QuantType.QInt8 if form == "qdq_s8" else quantization.QuantType.QUInt8
            quantization.quantize_static(path, to, Reader(given), quant_format=quantization.QuantFormat.QDQ, per_channel=form == "qdq", activation_type=activations,
                                         weight_type=quantization.QuantType.QInt8)
        expected = answers(to, given, optimises=False)
        others = [answers(to, given)] + [answers(to, changed(given, trial), optimises=False) for trial in range(TRIALS)]
        limit = 2 * max(distance(other, expected) for other in others)
        outputs = [output.name for output in onnx.load(to, load_external_data=False).graph.output]
        np.savez(folder / f"{name}_{form}.expected.npz", **dict(zip(outputs, expected)))
        shutil.copy(folder / f"{name}.inputs.npz", folder / f"{name}_{form}.inputs.npz")
        (folder / f"{name}_{form}.weights.json").write_text(json.dumps({"inputs": meta["inputs"], "noise": {"fp16": limit / 2}}))  # once() doubles it
        made[form] = f"{name}_{form}"
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tamp", required=True, type=pathlib.Path)
    parser.add_argument("--batches", default="1,32")
    parser.add_argument("--forms", default="qdq")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--vdevice", default="h200")
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--folder", type=pathlib.Path, help="keeps the models and programs")
    parser.add_argument("--more", default="", help="further options of tamp compile")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("names", nargs="+")
    args = parser.parse_args()
    logging.getLogger().setLevel(logging.ERROR)
    batches, forms = [int(batch) for batch in args.batches.split(",")], [form for form in args.forms.split(",") if form]
    folder, rows, failed = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="tamp-quantised-")), [], 0
    folder.mkdir(parents=True, exist_ok=True)

    def built(model, batch):
        more = ["--batch", str(batch)] if batch > 1 else []
        work = folder / f"batch{batch}"
        work.mkdir(exist_ok=True)
        return measure.build(args.tamp, folder, model, "fp16", args.vdevice, "sm_90a", work, "best", [*more, *args.more.split()])

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        makes = {name: pool.submit(make, folder, name, forms, args.layers) for name in args.names}
        jobs = {}
        for name, making in makes.items():
            try:
                jobs.update({(name, form, batch): (model, pool.submit(built, model, batch)) for form, model in making.result().items() for batch in batches})
            except Exception as failure:  # one network must not hide the others
                failed += 1
                print(f"{name}: not made: {str(failure)[-500:]}", flush=True)
        concurrent.futures.wait([job for _, job in jobs.values()])
    print(f"{measure.timed(['nvidia-smi', '--query-gpu=name', '--format=csv,noheader'])[0].stdout.strip()}, fp16, us\n| network | form | batch | us | of the floats | estimated us | error | limit |\n|---|---|---|---|---|---|---|---|")
    floats = {}
    for (name, form, batch), (model, job) in jobs.items():
        try:
            facts, meta = job.result(), json.loads((folder / f"{model}.weights.json").read_text())
            result = measure.once(folder / f"batch{batch}", folder, model, "fp16", meta, batch, "--repeat", str(args.repeat), "--graph", "--train", "50")
        except Exception as failure:
            failed += 1
            print(f"{name} {form} {batch}: FAILED: {str(failure)[-700:]}", flush=True)
            continue
        us = result["train_us"]
        if form == "float":
            floats[name, batch] = us
        share = f"{us / floats[name, batch]:.2f}" if (name, batch) in floats else ""
        failed += not result["good"]
        rows.append({"network": name, "form": form, "batch": batch, "us": us, "estimated_us": facts["estimated_us"], "error": result["error"], "limit": result["bar"], "good": result["good"]})
        print(f"| {name} | {form} | {batch} | {us:.1f} | {share} | {facts['estimated_us']:.1f} | {result['error']:.1e} | {result['bar']:.1e}{'' if result['good'] else ' WRONG'} |", flush=True)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1))
    print(f"{len(rows)} measured, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
