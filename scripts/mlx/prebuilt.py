"""prebuilt.py FOLDER BINDGEN CONFIG: makes FOLDER what mlx-sys links with, and says so to cargo in CONFIG.

mlx-sys would build MLX from source. Here MLX comes from its wheel; only mlx-c, a thin layer of C that mlx-sys brings, is
compiled, and its headers are translated by the program BINDGEN. A folder that is finished is left alone.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
MAC = platform.system() == "Darwin"
PIP = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--root-user-action=ignore"]
REQUIREMENTS = HERE / ("macos.txt" if MAC else "linux.txt")
CHECKED = ["--only-binary=:all:", "--require-hashes", "--requirement", str(REQUIREMENTS)]
LIBRARY = "libmlxc.dylib" if MAC else "libmlxc.so"
# Cargo's name of the machine that is built for, and that of the one whose types are only checked here.
TARGETS = ["aarch64-apple-darwin"] if MAC else ["x86_64-unknown-linux-gnu", "aarch64-apple-darwin"]


def mlx_c() -> Path:
    """Where cargo keeps the mlx-c that this workspace's mlx-sys brings."""
    command = ["cargo", "metadata", "--format-version", "1", "--all-features"]
    packages = json.loads(subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE).stdout)["packages"]
    return next(Path(p["manifest_path"]).parent / "src/mlx-c" for p in packages if p["name"] == "mlx-sys")


def check_versions(source: Path) -> None:
    """mlx-c is written for one release of MLX; the wheel must be that one."""
    wanted = re.search(r"GIT_TAG v([0-9.]+)", (source / "CMakeLists.txt").read_text()).group(1)
    listed = re.search(r"^mlx-\w+==([0-9.]+)", REQUIREMENTS.read_text(), re.MULTILINE).group(1)
    if wanted != listed:
        sys.exit(f"{REQUIREMENTS}: names MLX {listed}, but mlx-sys is written for {wanted}: list that one")


def stamp(source: Path) -> str:
    """Changes with everything that the folder is made of."""
    inputs = [REQUIREMENTS, HERE / "compat.h", Path(__file__)]
    return " ".join([hashlib.sha256(path.read_bytes()).hexdigest() for path in inputs] + [source.parents[1].name])


def compile_mlx_c(source: Path, folder: Path, made: Path) -> None:
    """The library. It knows where it will lie, so that no program needs a search path."""
    units = "".join(f'#include "{unit}"\n' for unit in sorted((source / "mlx/c").glob("*.cpp")))
    name = ["-Wl,-install_name," if MAC else "-Wl,--no-undefined,-soname,"][0] + str(folder / LIBRARY)
    command = ["c++", "-std=c++20", "-O1", "-w", "-fPIC", "-shared"]
    command += [] if MAC else ["-include", HERE / "compat.h"]
    command += [f"-I{source}", f"-I{made}/wheels/mlx/include", "-x", "c++", "-", "-o", made / LIBRARY]
    command += [f"-L{made}/wheels/mlx/lib", "-lmlx", name, f"-Wl,-rpath,{folder}/wheels/mlx/lib"]
    subprocess.run(command, input=units.encode(), check=True)


def translate_headers(source: Path, made: Path, bindgen: str) -> None:
    """What mlx-sys declares."""
    if MAC:
        sdk = subprocess.run(["xcrun", "--show-sdk-path"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
        clang = ["-isysroot", sdk]
    else:
        include = subprocess.run(["gcc", "-print-file-name=include"], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
        clang = ["-include", HERE / "compat.h", "-isystem", include]
    command = [bindgen, "--rust-target", "1.73.0", "--allowlist-item", "_?mlx_.*", source / "mlx/c/mlx.h"]
    command += ["-o", made / "bindings.rs", "--", *clang, f"-I{source}"]
    subprocess.run(command, env=os.environ | {"LIBCLANG_PATH": str(made / "wheels/clang/native")}, check=True)


def make(source: Path, folder: Path, bindgen: str) -> None:
    """The folder, moved to its place when it is finished."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
        made = Path(parent) / "made"
        subprocess.run([*PIP, *CHECKED, "--target", made / "wheels"], check=True)
        compile_mlx_c(source, folder, made)
        translate_headers(source, made, bindgen)
        (made / "stamp").write_text(stamp(source))
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def configure(folder: Path, config: Path) -> None:
    """Replaces the build script of mlx-sys by its results, as cargo allows for a package with a `links` key."""
    quoted = json.dumps(str(folder))
    tables = ["# Written by scripts/mlx/prebuilt.py; not committed. Without it mlx-sys builds MLX from source.\n"]
    for target in TARGETS:
        tables.append(f"[target.{target}.mlx]\nrustc-env = {{ OUT_DIR = {quoted} }}\n")
        if target == TARGETS[0]:
            tables.append(f'rustc-link-search = [{quoted}]\nrustc-link-lib = ["mlxc"]\n')
    text = "".join(tables)
    # Cargo would build anew after a file of the same words with a newer time.
    if not config.is_file() or config.read_text() != text:
        config.write_text(text)


def main(folder: Path, bindgen: str, config: Path) -> None:
    source = mlx_c()
    check_versions(source)
    done = folder / "stamp"
    if not done.is_file() or done.read_text() != stamp(source):
        make(source, folder, bindgen)
    configure(folder, config)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2], Path(sys.argv[3]).absolute())
