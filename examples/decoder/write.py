#!/usr/bin/env python3
"""Continues a text, or answers, with a program that `tamp compile --generate` made of a decoder: each word is printed while the kernel makes the next ones.

    write.py FOLDER CHECKPOINT TEXT [--chat] [--max-tokens N] [--temperature T] [--top-p P] [--seed S] [--device cuda|cpu]

FOLDER is what `tamp compile` wrote, CHECKPOINT what export.py read, a folder or a name: here its tokenizer is used, and the tokens that end a text. --chat: TEXT is a
message to the model, and is put into its template. Needs the package tamp, and transformers."""
import argparse
import time

import transformers

import tamp


class Printer:
    """Prints tokens as soon as they make whole characters."""

    def __init__(self, tokenizer, stops):
        self.tokenizer, self.stops, self.tokens, self.shown = tokenizer, stops, [], 0

    def __call__(self, token):
        if token in self.stops:
            return
        self.tokens.append(token)
        if not self.tokenizer.decode(self.tokens).endswith("\ufffd"):  # the rest of a character comes with the next token
            self.show()

    def show(self):
        text = self.tokenizer.decode(self.tokens)
        print(text[self.shown:], end="", flush=True)
        self.shown = len(text)


def stops_of(source, tokenizer):
    try:
        stops = transformers.GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:  # a checkpoint without that file
        stops = None
    stops = tokenizer.eos_token_id if stops is None else stops
    return [] if stops is None else [stops] if isinstance(stops, int) else stops


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("checkpoint")
    parser.add_argument("text")
    parser.add_argument("--chat", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--top-p", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "cpu"))
    arguments = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.checkpoint)
    message = [{"role": "user", "content": arguments.text}]
    prompt = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False) if arguments.chat else tokenizer(arguments.text).input_ids
    model, stops = tamp.load(arguments.folder, arguments.device), stops_of(arguments.checkpoint, tokenizer)
    if not arguments.chat:
        print(arguments.text, end="", flush=True)
    printer, begin = Printer(tokenizer, stops), time.monotonic()
    made = model.generate(prompt, arguments.max_tokens, temperature=arguments.temperature, top_p=arguments.top_p if arguments.temperature else 0, seed=arguments.seed, stops=stops,
                          on_token=printer)  # fmt: skip
    printer.show()
    print(f"\n\n{len(prompt)} and {len(made)} tokens in {time.monotonic() - begin:.2f} s, in one launch")


if __name__ == "__main__":
    main()
