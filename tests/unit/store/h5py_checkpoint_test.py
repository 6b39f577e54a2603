"""Reads checkpoint files with h5py, another build of HDF5, and compares every value and name; then damages them.

Usage: h5py_checkpoint_test.py CHECKPOINT_TEST, the test program that writes them. Exit code 0 if everything holds, 77 if
there is no h5py.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError:
    if "ZEROLAB_TEST_PYTHON" in os.environ:
        raise
    print("no h5py for this Python: passed over")
    sys.exit(77)

# What tests/unit/store/checkpoint_samples.h makes: parameter, state, shape, type, offset, length. bfloat16 is special.
SMALL = [("wte", "parameter", [30, 7], "<f4", 0, 100), ("wte", "parameter", [30, 7], "<f4", 103, 107),
         ("wte", "exp_avg", [30, 7], "<f8", 5, 199), ("h/0%2F.weight", "parameter", [333], "bfloat16", 0, 333),
         (".", "parameter", [], "<f2", 0, 1), ("..", "..", [3], "<i8", 1, 2), ("\u00e9 \n", "count", [9], "<i4", 0, 9),
         ("", "", [4001], "|u1", 0, 4001)]
FLOATS = (8 << 20) // 4
BYTES = (16 << 20) + 12345
LARGE = [("exact", "parameter", [FLOATS], "<f4", 0, FLOATS),
         ("more", "parameter", [FLOATS + 1], "<f4", 0, FLOATS + 1),
         ("bytes", "parameter", [BYTES], "|u1", 0, BYTES)]
LOCAL = {"small": {"residual": ("<f4", 1001), "flags": ("|u1", 3)}, "large": {"local": ("<f8", (8 << 20) // 8 + 77)}}


def pieces_of(file):
    """{(parameter, state): {offset: dataset}} and {parameter: shape} by the names in the attributes."""
    pieces, shapes = {}, {}
    for parameter in file["tensors"].values():
        shapes[parameter.attrs["name"]] = list(parameter.attrs["shape"])
        for state in parameter.values():
            datasets = {int(offset): dataset for offset, dataset in state.items()}
            pieces[parameter.attrs["name"], state.attrs["name"]] = datasets
    return pieces, shapes


def values_as_saved(raw, dtype):
    """What h5py should give: a bfloat16 becomes the float32 of the same value."""
    if dtype == "bfloat16":
        return (numpy.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    return numpy.frombuffer(raw, dtype)


def same(read, saved, dtype):
    if dtype == "bfloat16":  # the payload of a NaN may change on its way to another type
        return numpy.array_equal(read.astype("<f4"), saved, equal_nan=True)
    return read.dtype == saved.dtype and read.tobytes() == saved.tobytes()


def check_values(path, expected):
    raw = path.with_suffix(".values").read_bytes()
    with h5py.File(path, "r") as file:
        attributes = dict(file.attrs)
        assert attributes == {"format": "zerolab-checkpoint", "format_version": 1, "step": 500, "rank": 1, "ranks": 4}
        pieces, shapes = pieces_of(file)
        assert sum(len(datasets) for datasets in pieces.values()) == len(expected)
        at = 0
        for parameter, state, shape, dtype, offset, length in expected:
            dataset = pieces[parameter, state][offset]
            size = length * (2 if dtype == "bfloat16" else numpy.dtype(dtype).itemsize)
            assert dataset.shape == (length,) and dataset.fletcher32 and dataset.compression is None, dataset
            assert dataset.chunks[0] * dataset.dtype.itemsize <= 8 << 20 or dtype == "bfloat16", dataset.chunks
            assert shapes[parameter] == shape, (parameter, shapes[parameter])
            assert same(dataset[:], values_as_saved(raw[at:at + size], dtype), dtype), (parameter, state, offset)
            at += size
        assert at == len(raw)
        local = {dataset.attrs["name"]: (dataset.dtype.str, len(dataset)) for dataset in file["local"].values()}
        assert local == LOCAL[path.stem], local


def chunk_places(path):
    with h5py.File(path, "r") as file:
        for datasets in pieces_of(file)[0].values():
            for dataset in datasets.values():
                for chunk in range(dataset.id.get_num_chunks()):
                    info = dataset.id.get_chunk_info(chunk)
                    yield dataset.name, info.byte_offset, info.size


def check_damage_is_noticed(path):
    for name, begin, size in list(chunk_places(path)):
        for byte in (begin, begin + size // 2, begin + size - 1):
            whole = path.read_bytes()
            path.write_bytes(whole[:byte] + bytes([whole[byte] ^ 4]) + whole[byte + 1:])
            with h5py.File(path, "r") as file:
                try:
                    file[name][:]
                except OSError:
                    pass
                else:
                    raise AssertionError(f"{name}: a flipped bit at {byte} goes unnoticed")
            path.write_bytes(whole)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="zerolab-h5py-") as folder:
        subprocess.run([program, "[for-h5py]"], check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"ZEROLAB_TEST_OUT": folder})
        folder = pathlib.Path(folder)
        check_values(folder / "small.h5", SMALL)
        check_values(folder / "large.h5", LARGE)
        check_damage_is_noticed(folder / "small.h5")


main()
