"""Which samples a step takes, as zerolab draws them: what core/train/sample_order.h and zerolab/random.h say, once more
in Python, so that another program can train on the same batches.
"""
MASK = (1 << 64) - 1


def splitmix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def mix_key(*parts):
    key = 0
    for part in parts:
        key = splitmix(key ^ splitmix(part))
    return key


def name_key(name):
    value = 14695981039346656037
    for byte in name.encode():
        value = ((value ^ byte) * 1099511628211) & MASK
    return value


def permute(index, size, key):
    """A keyed bijection of [0, size)."""
    if size <= 1:
        return 0
    half = ((size - 1).bit_length() + 1) // 2
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for number in range(4):
            left, right = right, left ^ (mix_key(key, number, right) & mask)
        index = (left << half) | right
        if index < size:
            return index


class SampleOrder:
    def __init__(self, size, seed):
        self.size, self.key = size, mix_key(seed, name_key("sample order"))

    def index(self, number):
        """Sample index of a global sample number."""
        epoch, place = divmod(number, self.size)
        return permute(place, self.size, mix_key(self.key, epoch))
