"""Assembles a checkpoint's tensors with h5py as FORMAT.md says, and compares them with what was saved.

Usage: h5py_assembly_test.py CHECKPOINT EXPECTED. EXPECTED.txt has a line "parameter state dtype size..." for each
tensor, and EXPECTED-0, EXPECTED-1, ... its bytes. Exit code 0 if everything holds. Runs FORMAT.md's own example.
"""

import json
import pathlib
import re
import sys

import h5py
import numpy

FORMAT = pathlib.Path(__file__).resolve().parents[2] / "core" / "store" / "FORMAT.md"


def run_example(folder):
    examples = re.findall(r"```python\n(.*?)```", FORMAT.read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [text for text in examples if "rank-*.h5" in text]
    found = {}
    example, replaced = re.subn(r'"runs/[^"]*/rank-\*\.h5"', repr(str(folder / "rank-*.h5")), example)
    assert replaced == 1, "FORMAT.md's example opens no checkpoint"
    exec(example, found)
    return found["tensors"]


def expected_values(path, dtype):
    if dtype != "bfloat16":
        return numpy.fromfile(path, dtype)
    # The upper halves of float32.
    return (numpy.fromfile(path, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)


def check_tensors(tensors, expected):
    lines = pathlib.Path(expected + ".txt").read_text(encoding="utf-8").splitlines()
    assert lines and len(lines) == len(tensors), (lines, list(tensors))
    for number, line in enumerate(lines):
        parameter, state, dtype, *shape = line.split(" ")
        found = tensors[parameter, state]
        values = expected_values(f"{expected}-{number}", dtype)
        assert found.shape == tuple(map(int, shape)), (line, found.shape)
        assert found.dtype == values.dtype, (line, found.dtype)
        assert found.tobytes() == values.tobytes(), line


def child_of(group, name):
    """The one with this true name."""
    (found,) = [child for child in group.values() if child.attrs["name"] == name]
    return found


def check_against_manifest(folder):
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format"] == "zerolab-checkpoint" and manifest["format_version"] == 1
    assert [file["name"] for file in manifest["files"]] == sorted(p.name for p in folder.glob("rank-*.h5"))
    for rank, file in enumerate(manifest["files"]):
        path = folder / file["name"]
        assert path.stat().st_size == file["bytes"]
        with h5py.File(path, "r") as f:
            assert f.attrs["format"] == "zerolab-checkpoint" and f.attrs["format_version"] == 1
            assert f.attrs["step"] == manifest["step"]
            assert f.attrs["rank"] == rank and f.attrs["ranks"] == manifest["run"]["ranks"]
            for number, offset, length, chunks in file["pieces"]:
                tensor = manifest["tensors"][number]
                parameter = child_of(f["tensors"], tensor["parameter"])
                piece = child_of(parameter, tensor["state"])[str(offset)]
                assert list(parameter.attrs["shape"]) == tensor["shape"]
                assert piece.shape == (length,) and piece.fletcher32
                assert [piece.id.get_chunk_info(i).byte_offset for i in range(len(chunks))] == chunks
            assert len(f["local"]) == len(file["local"])
            for local in file["local"]:
                dataset = child_of(f["local"], local["name"])
                assert dataset.shape == (local["length"],) and dataset.dtype == local["dtype"]


def main():
    folder, expected = pathlib.Path(sys.argv[1]), sys.argv[2]
    tensors = run_example(folder)
    check_tensors(tensors, expected)
    check_against_manifest(folder)
    print(f"{folder}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
