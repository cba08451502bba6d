"""Writes libcuda.a, which stands in for NVIDIA's libraries when a program is linked.

It has every function that cudarc declares. Each jumps through a slot, and the slots are filled when the program calls
cuInit, which comes before all else: with the functions of NVIDIA's libraries where the loader finds them. Where it does
not, they answer with their library's own "there is none", so that asking for a GPU is an error and no crash.
"""

import re
import subprocess
import sys
from pathlib import Path

# Module of cudarc, names under which the loader looks, what functions answer where the library is absent.
LIBRARIES = {
    "driver": (["libcuda.so.1", "libcuda.so"], 100),  # CUDA_ERROR_NO_DEVICE
    "cublas": (["libcublas.so.13", "libcublas.so"], 1),  # CUBLAS_STATUS_NOT_INITIALIZED
    "cublaslt": (["libcublasLt.so.13", "libcublasLt.so"], 1),
    "curand": (["libcurand.so.10", "libcurand.so"], 203),  # CURAND_STATUS_INITIALIZATION_FAILED
    "nvrtc": (["libnvrtc.so.13", "libnvrtc.so"], 11),  # NVRTC_ERROR_INTERNAL_ERROR
}
# What a linker asks for beside libcuda, which holds everything.
ALSO_LINKED = ["cublas", "cublasLt", "curand", "nvrtc"]

HEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

/* Folders after the loader's own. */
static const char *const folders[] = {
    "/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64", 0};

static void *find_library(const char *const *sonames) {
    char path[512];
    for (const char *const *soname = sonames; *soname; soname++) {
        void *library = dlopen(*soname, RTLD_NOW | RTLD_GLOBAL);
        for (const char *const *folder = folders; !library && *folder; folder++) {
            snprintf(path, sizeof path, "%s/%s", *folder, *soname);
            library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        }
        if (library) return library;
    }
    return 0;
}

static void fill(const char *const *sonames, const char *const *names, void **slots) {
    void *library = find_library(sonames);
    for (int i = 0; library && names[i]; i++) {
        void *function = dlsym(library, names[i]);
        if (function) slots[i] = function;
    }
}

/* Of cuGetErrorName and cuGetErrorString. */
static int no_driver_text(int error, const char **text) {
    (void)error;
    *text = "NVIDIA's driver library libcuda.so.1 was not found";
    return 0;
}

/* Of functions that return a text. */
static const char *no_library_text(void) { return "NVIDIA's library for this was not found"; }
"""

TAIL = r"""
static void fill_all(void) {
%s}

int cuInit(unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_all);
    return ((int (*)(unsigned))driver_slots[%d])(flags);
}
"""


def declared(source: Path) -> list[str]:
    """Functions of NVIDIA's in a module of cudarc."""
    names = re.findall(r"\bpub unsafe fn ((?!culib\b)(?:cu|nvrtc)\w+)", source.read_text())
    if not names:
        sys.exit(f"{source}: no functions; another version of cudarc may declare them elsewhere")
    return sorted(set(names))


def absent(library: str, name: str) -> str:
    """What a slot holds until its library is found."""
    if name in ("cuGetErrorName", "cuGetErrorString"):
        return "no_driver_text"
    if name.endswith(("GetStatusName", "GetStatusString", "GetErrorString")):
        return "no_library_text"
    return f"{library}_absent"


def code(library: str, names: list[str], sonames: list[str], answer: int) -> str:
    """Names, slots and jumps of one library."""
    texts = "".join(f'"{name}", ' for name in names)
    slots = "".join(f"(void *){absent(library, name)}, " for name in names)
    jumps = "".join(
        f'__asm__(".text\\n.globl {name}\\n.type {name}, @function\\n'
        f'{name}: jmp *{library}_slots+{8 * index}(%rip)");\n'
        for index, name in enumerate(names)
        if name != "cuInit"
    )
    return (
        f"static long {library}_absent(void) {{ return {answer}; }}\n"
        f"static const char *const {library}_sonames[] = {{{''.join(f'{chr(34)}{s}{chr(34)}, ' for s in sonames)}0}};\n"
        f"static const char *const {library}_names[] = {{{texts}0}};\n"
        f'__attribute__((visibility("hidden"), used)) void *{library}_slots[] = {{{slots}}};\n{jumps}'
    )


def main(cudarc: Path, folder: Path) -> None:
    source, fills = HEAD, ""
    driver = declared(cudarc / "driver/sys/mod.rs")
    for library, (sonames, answer) in LIBRARIES.items():
        names = declared(cudarc / library / "sys/mod.rs")
        source += code(library, names, sonames, answer)
        fills += f"    fill({library}_sonames, {library}_names, {library}_slots);\n"
    source += TAIL % (fills, driver.index("cuInit"))
    written, compiled = folder / "late_binding.c", folder / "late_binding.o"
    written.write_text(source)
    subprocess.run(["cc", "-O2", "-fPIC", "-Wall", "-Werror", "-c", written, "-o", compiled], check=True)
    for name in ["cuda", *ALSO_LINKED]:
        archive = folder / f"lib{name}.a"
        archive.unlink(missing_ok=True)
        subprocess.run(["ar", "rcs", archive, *([compiled] if name == "cuda" else [])], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
