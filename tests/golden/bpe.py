"""tiktoken's tokens of hard strings and of data/shakespeare.txt, with the ranks and the pattern of GPT-2.

Needs tiktoken, and the two files that tools/setup puts into data/.
"""
import base64
import hashlib
import random
from pathlib import Path

import numpy
import tiktoken

DATA = Path(__file__).resolve().parents[2] / "data"
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
END_OF_TEXT = "<|endoftext|>"

WRITTEN = [
    "Hello, world!", "I'm, you're, he'd, we'll, they've, it's, can't", "I'M YOU'RE HE'D WE'LL THEY'VE IT'S",
    "'s'd'm't'll've're",
    "'''", "'", " '", "' s", "''s", "x'lx'vx'r", "o'clock rock'n'roll", "\u2019s it\u2019s \u2018quoted\u2019",
    "'S 'll", "l'l l'll", "'re're're",
    "0", "00", "007", "1234567890", "3.14159", "1,000,000", "1e-9", "0x1F", "12ab34", "a1b2",
    "\u00b2\u00b3\u00bc\u00bd\u2167\u0663\u0664\u096b",
    " ", "  ", "   ", "    a", "a ", "a  ", "a   b", " a  b   c    d", "\t", "\t\t", "\ta", " \ta", "\t a", "a\tb",
    "\n", "\n\n", "\n\n\n",
    "a\nb", "a\n b", "a\n\n b", "a \n b", "a \n\n  b ", "\r\n", "a\r\nb\r\n", "\r\r\n", "\v\f", " \v a", "a\x0cb",
    "def f(x):\n    return x + 1\n",
    "{\n\t\"key\": [1, 2, 3],\n\t\"b\": null\n}\n", "if (a<=b&&c!=d){e->f();}", "https://example.org/a?b=c&d=%20#e",
    "a_b__c___d", "--help",
    "e-mail@example.com", "\\n\\t\\\\", "<html><br/></html>", "<|endoftext", "|>", "<|", "\U0001f600", " \U0001f600",
    "a\U0001f600b",
    "\U0001f600\U0001f600\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f1e9\U0001f1ea", "\u2728\ufe0f \u2764\ufe0f",
    "\U0001f44b\U0001f3fd!", "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8",
    "\ud55c\uad6d\uc5b4 \ubb38\uc7a5", "\u4e2d\u6587 \u4e2d\u6587",
    "\u3000\u5168\u89d2\u3000", "\uff11\uff12\uff13", "\U00020000\U0002a6df", "e\u0301", "\u00e9 e\u0301", "n\u0303o",
    "a\u0300\u0301\u0302", "Z\u0351\u036b\u0343", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u0928\u092e\u0938\u094d\u0924\u0947", "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 123", "\u200fabc\u200e", "\u202eabc\u202c",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0393\u03b5\u03b9\u03ac \u03c3\u03bf\u03c5", "Stra\u00dfe \u00dcber na\u00efve fa\u00e7ade",
    "\ufb01 \u0132 \u01c5", "\x00", "a\x00b", "\x01\x02\x03", "\x1b[31mred\x1b[0m", "\x1c\x1d\x1e\x1f", "a\x1cb\x1d c",
    "\x7f", "\x80\x81\x9f", "\x85", "a\x85b", "\x85\x85 a", "\xa0", "a\xa0b", "a\xa0 b", "a \xa0b", " \xa0\xa0 a",
    "\xad", "\u1680a", "\u180e", "a\u180eb", " \u180e a",
    "\u2000\u2001\u2009\u200aa", "\u200b", "a\u200bb", " \u200b ", "\u2028", "a\u2028b\u2029c", "\u202fa", "\u205fa",
    "\u2060a", "\ufeffa", "a\ufeff", "\ufffd", "\uffff", "\ue000", "\U0010ffff",
    "\u2014 \u2013 \u2026", "\u20ac5 \u00a35 \u00a55", "\u2200x\u2208\u211d: x\u00b2\u22650", "\u210c\u212b\u2126",
    "\u2460\u2461 \u3251", "\U0001d400\U0001d7ce", "\u00aa\u00ba", "\u02b0\u02bc\u0294",
    "SolidGoldMagikarp", "antidisestablishmentarianism", "Donaudampfschifffahrtsgesellschaftskapit\u00e4n",
    "ALLCAPSWORDS", "camelCaseWords", "\u00c3\u00a9",
    "a" * 127, "a" * 128, "a" * 129, "a" * 1000, "ab" * 200, "xyz" * 333, " " * 127, " " * 128, " " * 129,
    " " * 1000 + "x", "\n" * 300, "\n " * 150,
    "!" * 500, "-" * 80, "=" * 129, "1" * 400, "\u00e9" * 200, "\u4e00" * 100, "\U0001f600" * 60, "'" * 200, " '" * 100,
    "." * 257,
    "The quick brown fox jumps over the lazy dog. " * 5, "ha" * 64 + "!", "lol" + "o" * 200 + " ok",
    "A" * 64 + "a" * 65,
]
SPECIAL = [END_OF_TEXT, "a" + END_OF_TEXT, END_OF_TEXT + "a", "a " + END_OF_TEXT + " b", "a  " + END_OF_TEXT + "\n\nb",
           END_OF_TEXT * 3, "<|endoftext|" + END_OF_TEXT + "|>", "don'" + END_OF_TEXT + "t",
           "no such words: <|im_start|>"]
POOLS = ["abc XYZ'sdlvremt ", "0123456789 \u00b2\u00bd\u2167\u0663",
         "  \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u180e\u200b\u2003\u2028\u2029\u3000\ufeff",
         "\u00e9\u00fc\u00f1\u00df\u00e7\u01ff\u0302\u0301",
         "\u65e5\u672c\u8a9e\u4e2d\u6587\ud55c\uad6d\uc5b4\u304b\u306a",
         "\U0001f600\U0001f469\u200d\U0001f467\U0001f1e9\U0001f1ea\u2728\ufe0f",
         "\u05e9\u05dc\u05d5\u05dd\u0645\u0631\u062d\u0628\u0627\u200f", "!?.,;:-_()[]{}<>|@#$%^&*\"'`~",
         "\x00\x01\x07\x7f\x80\x9f\xad"]
NUM_MIXED = 120


def mixed_strings(seed):
    draw = random.Random(seed)
    return ["".join(draw.choice(draw.choice(POOLS)) for _ in range(draw.randrange(1, 80))) for _ in range(NUM_MIXED)]


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def write(group, strings, encode):
    """Strings and tokens end to end, and where each begins and ends: a NUL ends no string here."""
    parts = {"bytes": [string.encode() for string in strings], "tokens": [encode(string) for string in strings]}
    for name, lists in parts.items():
        group.create_dataset(name, data=numpy.concatenate([numpy.array(list(one), "i4") for one in lists]),
                             compression="gzip", shuffle=True)
        group[name + "_ends"] = numpy.cumsum([len(one) for one in lists]).astype("i4")


def generate(group, seed):
    ranks_text = (DATA / "gpt2.tiktoken").read_bytes()
    ranks = {base64.b64decode(word): int(rank) for word, rank in (line.split() for line in ranks_text.splitlines())}
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks,
                                 special_tokens={END_OF_TEXT: len(ranks)})
    group.attrs["tiktoken"] = tiktoken.__version__
    group.attrs["ranks_sha256"] = hashlib.sha256(ranks_text).hexdigest()
    write(group.create_group("ordinary"), WRITTEN + SPECIAL + mixed_strings(seed), encoding.encode_ordinary)
    write(group.create_group("special"), SPECIAL, lambda text: encoding.encode(text, allowed_special="all"))
    corpus = (DATA / "shakespeare.txt").read_bytes()
    tokens = numpy.array(encoding.encode_ordinary(corpus.decode()), "<i4")
    shakespeare = group.create_group("shakespeare")
    shakespeare.attrs["text_fnv1a"] = f"{fnv1a(corpus):016x}"
    shakespeare.attrs["num_tokens"] = len(tokens)
    shakespeare.attrs["tokens_fnv1a"] = f"{fnv1a(tokens.tobytes()):016x}"
