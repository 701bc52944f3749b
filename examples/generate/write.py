#!/usr/bin/env python3
"""Writes a text with the decoder of train.py: compiles it to a program that makes tokens, and runs that, on a GPU or on the stand-in.

    write.py [BEGINNING] [--tokens N] [--temperature T] [--seed S] [--folder FOLDER] [--device cuda|cpu]

Needs `tamp` in PATH.
"""
import argparse
import json
import pathlib
import subprocess

import tokenizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("beginning", nargs="?", default="The statement")
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(__file__).parent, help="where train.py wrote words.onnx")
    parser.add_argument("--device", choices=["cuda", "cpu"])
    arguments = parser.parse_args()
    tokens = tokenizer.Tokenizer(json.loads((arguments.folder / "words.json").read_text()))
    unknown = set(arguments.beginning) - set(tokens.tokens)
    if unknown or not arguments.beginning:
        parser.error(f"the beginning has {sorted(unknown)}, which the model does not know, or nothing")
    program, device = arguments.folder / "words", ["--device", arguments.device] if arguments.device else []
    vdevice = ["--vdevice", "cpu"] if arguments.device == "cpu" else []
    subprocess.run(["tamp", "compile", "-q", arguments.folder / "words.onnx", "-o", program, "--generate", *vdevice], check=True)
    prompt = tokens.encode(arguments.beginning)
    made = subprocess.run(["tamp", "run", "-q", program, "--prompt", ",".join(map(str, prompt)), "--max-tokens", str(arguments.tokens), "--temperature", str(arguments.temperature), "--seed",
                           str(arguments.seed), "--json", *device], check=True, stdout=subprocess.PIPE)  # fmt: skip
    result = json.loads(made.stdout)
    print(tokens.decode(prompt + result["tokens"]))
    print(f"\n{len(result['tokens'])} tokens in {result['time_us']['median'] / 1e3:.1f} ms, in one launch, on {result['device_name']}")


if __name__ == "__main__":
    main()
