"""How fast other programs are: seconds of the processor for the lines of a file.

    python peers.py NAME FILE      NAME: one of the functions below
"""

import json
import sys
import time


def bloom(texts):
    """fast-dedup: a Bloom filter, which takes one text in a million for a duplicate that is none."""
    from fast_dedup import BloomFilter
    met = BloomFilter(len(texts), 1e-6)
    return [text for text in texts if not met.contains(text) and not met.add(text)]


def minhash(texts):
    """fast-dedup: signatures."""
    from fast_dedup import MinHash
    signatures = []
    for text in texts:
        words, of = text.split(), MinHash(112)
        for i in range(len(words) - 4):
            of.update(" ".join(words[i:i + 5]))
        signatures.append(of)
    return signatures


def datatrove(texts):
    """datatrove: signatures and bands, of words that are cut at blanks."""
    from datatrove.pipeline.dedup import minhash as its
    its.load_word_tokenizer = lambda *_: type("Split", (), {"word_tokenize": lambda _, text: text.split()})()
    maker = its.MinhashDedupSignature("/tmp")
    return [maker.get_signature(maker.get_shingles(text)) for text in texts]


if __name__ == "__main__":
    function = globals()[sys.argv[1]]
    function(["five words are enough here"])  # imports what it needs
    begin = time.process_time()
    function([json.loads(line)["text"] for line in open(sys.argv[2])])
    print(time.process_time() - begin)
