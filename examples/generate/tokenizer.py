"""A small byte-pair tokenizer: tokens are pieces of words, found by joining the most frequent pair of tokens again and again."""
import collections
import re

PIECES = re.compile(r" ?[A-Za-z]+| ?[0-9]|.")  # words keep the space before them; no token is longer than one


def joined(tokens, pair):
    made, i = [], 0
    while i < len(tokens):
        is_pair = tuple(tokens[i:i + 2]) == pair
        made.append("".join(pair) if is_pair else tokens[i])
        i += 1 + is_pair
    return made


def learn(text, count):
    """-> `count` tokens, in the order in which they were found; the first are characters."""
    pieces = collections.Counter(PIECES.findall(text))
    parts = {piece: list(piece) for piece in pieces}
    tokens = sorted(set(text))
    pairs = collections.Counter()
    for piece, part in parts.items():
        count_pairs(pairs, part, pieces[piece])
    while len(tokens) < count:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        token = "".join(best)
        if token not in tokens:  # of two other parts
            tokens.append(token)
        for piece, part in parts.items():
            if len(part) > 1 and token in piece:
                parts[piece] = joined(part, best)
                count_pairs(pairs, part, -pieces[piece])
                count_pairs(pairs, parts[piece], pieces[piece])
    return tokens


def count_pairs(pairs, part, times):
    for pair in zip(part, part[1:]):
        pairs[pair] += times


class Tokenizer:
    """Of the tokens that `learn` found: of the pairs in a word, that is joined first whose token was found first."""

    def __init__(self, tokens):
        self.tokens, self.ranks, self.known = tokens, {token: rank for rank, token in enumerate(tokens)}, {}

    def encode(self, text):
        """-> numbers; KeyError where a character is not known."""
        return [number for piece in PIECES.findall(text) for number in self._piece(piece)]

    def _piece(self, piece):
        if piece not in self.known:
            part = list(piece)
            while ranked := [pair for pair in zip(part, part[1:]) if "".join(pair) in self.ranks]:
                part = joined(part, min(ranked, key=lambda pair: self.ranks["".join(pair)]))
            self.known[piece] = [self.ranks[token] for token in part]
        return self.known[piece]

    def decode(self, numbers):
        return "".join(self.tokens[number] for number in numbers)
