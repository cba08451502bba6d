"""toolkit.py FOLDER: makes FOLDER a CUDA_HOME that builds programs which start with and without CUDA.

A folder that is finished is left alone.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import late_binding

HERE = Path(__file__).parent
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--root-user-action=ignore"]
CHECKED = ["--only-binary=:all:", "--require-hashes", "--requirement", str(HERE / "requirements.txt")]


def cudarc_source() -> Path:
    """Where cargo keeps the cudarc that this workspace uses."""
    command = ["cargo", "metadata", "--format-version", "1", "--all-features"]
    packages = json.loads(subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    return next(Path(p["manifest_path"]).parent / "src" for p in packages if p["name"] == "cudarc")


def stamp(cudarc: Path) -> str:
    """Changes with everything that the folder is made of."""
    inputs = [HERE / "requirements.txt", HERE / "late_binding.py", Path(__file__)]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs]
    return " ".join([*digests, cudarc.parent.name])


def main(folder: Path) -> None:
    cudarc = cudarc_source()
    done = folder / "stamp"
    wanted = stamp(cudarc)
    if done.is_file() and done.read_text() == wanted:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
        # All wheels in one go: pip skips a folder that an earlier call has made, and they share one.
        subprocess.run([*PIP, *CHECKED, "--target", unpacked], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        (Path(unpacked) / "nvidia/cu13").rename(folder)
    # The linker takes the runtime into the program where it finds no shared one.
    libraries = folder / "lib"
    for shared in libraries.glob("libcudart.so*"):
        shared.unlink()
    (libraries / "libcudart.a").symlink_to("libcudart_static.a")
    late_binding.main(cudarc, libraries)
    done.write_text(wanted)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
