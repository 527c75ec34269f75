"""Makes the program that joins others: a container without a shell runs what its ConfigMaps have in parts.

A ConfigMap holds 1 MiB, and a Go program is larger. So its parts are in several, and a loader, which is small
enough for any of them, is called as `LOADER OUT PART...`: it writes the parts into OUT, one after another,
and becomes that program, which has its environment and no arguments. It needs nothing of the image, and
writes nothing but OUT. Where it fails, its exit code says at what:

    2   OUT can't be written
    3   a part can't be read
    4   a part can't be copied, as where no space is left
    5   OUT can't be executed
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from bootstrap.machine import ELF_MACHINES

# A ConfigMap holds 1 MiB in all, with its names.
_LARGEST_PART = 1_000_000
# What an instruction is as an assembler takes it, and as the processor does. Where a jump goes is added.
_Instructions = tuple[tuple[str, str], ...]

# Registers: rbx is where argc and argv are, r12 OUT, r13 the next of argv, r14 a part, ebp the exit code.
# System calls: https://github.com/torvalds/linux/blob/v6.6/arch/x86/entry/syscalls/syscall_64.tbl
# Encodings: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.
_AMD64: _Instructions = (
    ("mov rbx, rsp", "48 89 e3"),
    ("mov ebp, 2", "bd 02 00 00 00"),
    ("mov rdi, [rbx+16]", "48 8b 7b 10"),
    ("mov esi, 0x241", "be 41 02 00 00"),  # O_WRONLY | O_CREAT | O_TRUNC
    ("mov edx, 0x1c0", "ba c0 01 00 00"),  # mode 0700
    ("mov eax, 2", "b8 02 00 00 00"),  # open
    ("syscall", "0f 05"),
    ("test eax, eax", "85 c0"),
    ("js fail", "78"),
    ("mov r12d, eax", "41 89 c4"),
    ("lea r13, [rbx+24]", "4c 8d 6b 18"),
    ("part:", ""),
    ("mov rdi, [r13+0]", "49 8b 7d 00"),
    ("test rdi, rdi", "48 85 ff"),
    ("jz whole", "74"),
    ("add r13, 8", "49 83 c5 08"),
    ("mov ebp, 3", "bd 03 00 00 00"),
    ("xor esi, esi", "31 f6"),  # O_RDONLY
    ("mov eax, 2", "b8 02 00 00 00"),  # open
    ("syscall", "0f 05"),
    ("test eax, eax", "85 c0"),
    ("js fail", "78"),
    ("mov r14d, eax", "41 89 c6"),
    ("mov ebp, 4", "bd 04 00 00 00"),
    ("copy:", ""),
    ("mov edi, r12d", "44 89 e7"),
    ("mov esi, r14d", "44 89 f6"),
    ("xor edx, edx", "31 d2"),  # from where it is
    ("mov r10d, 0x100000", "41 ba 00 00 10 00"),  # bytes at once
    ("mov eax, 40", "b8 28 00 00 00"),  # sendfile
    ("syscall", "0f 05"),
    ("test rax, rax", "48 85 c0"),
    ("js fail", "78"),
    ("jnz copy", "75"),
    ("mov edi, r14d", "44 89 f7"),
    ("mov eax, 3", "b8 03 00 00 00"),  # close
    ("syscall", "0f 05"),
    ("jmp part", "eb"),
    ("whole:", ""),
    ("mov edi, r12d", "44 89 e7"),
    ("mov eax, 3", "b8 03 00 00 00"),  # close: nobody executes a file that is open for writing
    ("syscall", "0f 05"),
    ("mov ebp, 5", "bd 05 00 00 00"),
    ("mov rax, [rbx]", "48 8b 03"),
    ("lea rsi, [rbx+16]", "48 8d 73 10"),
    ("mov rdi, [rsi]", "48 8b 3e"),
    ("lea rdx, [rsi+rax*8]", "48 8d 14 c6"),  # the environment comes after argv
    ("and qword [rsi+8], 0", "48 83 66 08 00"),  # argv is OUT alone
    ("mov eax, 59", "b8 3b 00 00 00"),  # execve
    ("syscall", "0f 05"),
    ("fail:", ""),
    ("mov edi, ebp", "89 ef"),
    ("mov eax, 60", "b8 3c 00 00 00"),  # exit
    ("syscall", "0f 05"),
)
# Registers: x19 is where argc and argv are, x20 OUT, x21 the next of argv, x22 a part, x23 the exit code.
# System calls: https://github.com/torvalds/linux/blob/v6.6/include/uapi/asm-generic/unistd.h
# Encodings: Arm Architecture Reference Manual for A-profile, chapter C6.
_ARM64: _Instructions = (
    ("mov x19, sp", "910003f3"),
    ("mov x23, #2", "d2800057"),
    ("mov x0, #-100", "92800c60"),  # AT_FDCWD
    ("ldr x1, [x19, #16]", "f9400a61"),
    ("mov x2, #0x241", "d2804822"),  # O_WRONLY | O_CREAT | O_TRUNC
    ("mov x3, #0x1c0", "d2803803"),  # mode 0700
    ("mov x8, #56", "d2800708"),  # openat
    ("svc #0", "d4000001"),
    ("tbnz x0, #63, fail", "b7f80000"),
    ("mov x20, x0", "aa0003f4"),
    ("add x21, x19, #24", "91006275"),
    ("part:", ""),
    ("ldr x1, [x21], #8", "f84086a1"),
    ("cbz x1, whole", "b4000001"),
    ("mov x23, #3", "d2800077"),
    ("mov x0, #-100", "92800c60"),  # AT_FDCWD
    ("mov x2, #0", "d2800002"),  # O_RDONLY
    ("mov x8, #56", "d2800708"),  # openat
    ("svc #0", "d4000001"),
    ("tbnz x0, #63, fail", "b7f80000"),
    ("mov x22, x0", "aa0003f6"),
    ("mov x23, #4", "d2800097"),
    ("copy:", ""),
    ("mov x0, x20", "aa1403e0"),
    ("mov x1, x22", "aa1603e1"),
    ("mov x2, #0", "d2800002"),  # from where it is
    ("mov x3, #0x100000", "d2a00203"),  # bytes at once
    ("mov x8, #71", "d28008e8"),  # sendfile
    ("svc #0", "d4000001"),
    ("tbnz x0, #63, fail", "b7f80000"),
    ("cbnz x0, copy", "b5000000"),
    ("mov x0, x22", "aa1603e0"),
    ("mov x8, #57", "d2800728"),  # close
    ("svc #0", "d4000001"),
    ("b part", "14000000"),
    ("whole:", ""),
    ("mov x0, x20", "aa1403e0"),
    ("mov x8, #57", "d2800728"),  # close: nobody executes a file that is open for writing
    ("svc #0", "d4000001"),
    ("mov x23, #5", "d28000b7"),
    ("ldr x2, [x19]", "f9400262"),
    ("add x1, x19, #16", "91004261"),
    ("ldr x0, [x1]", "f9400020"),
    ("str xzr, [x1, #8]", "f900043f"),  # argv is OUT alone
    ("add x2, x1, x2, lsl #3", "8b020c22"),  # the environment comes after argv
    ("mov x8, #221", "d2801ba8"),  # execve
    ("svc #0", "d4000001"),
    ("fail:", ""),
    ("mov x0, x23", "aa1703e0"),
    ("mov x8, #93", "d2800ba8"),  # exit
    ("svc #0", "d4000001"),
)
# Of arm64's jumps: how many bits the distance has, in instructions, and where they begin.
_DISTANCES = {"b": (26, 0), "cbz": (19, 5), "cbnz": (19, 5), "tbnz": (14, 5)}
_HEADER, _SEGMENT = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
_LOAD, _STACK, _EXECUTABLE, _WRITABLE, _READABLE = 1, 0x6474E551, 1, 2, 4
# Some arm64 kernels have pages of 64 KiB.
_ADDRESS, _LARGEST_PAGE = 0x400000, 0x10000


def loader(architecture: str) -> bytes:
    """Returns the static program for "amd64" or "arm64", as Go and Kubernetes name them. Raises KeyError."""
    machine = ELF_MACHINES[architecture]
    code = _amd64(_AMD64) if architecture == "amd64" else _arm64(_ARM64)
    begin = _HEADER.size + 2 * _SEGMENT.size
    size = begin + len(code)
    identity = b"\x7fELF" + bytes([2, 1, 1])  # 64 bits, little-endian, version 1
    header = _HEADER.pack(
        *(identity, 2, machine, 1),  # an executable, version 1
        *(_ADDRESS + begin, _HEADER.size, 0, 0),
        *(_HEADER.size, _SEGMENT.size, 2, 0, 0, 0),
    )
    # All of it is one segment.
    load = _SEGMENT.pack(_LOAD, _READABLE | _EXECUTABLE, 0, _ADDRESS, _ADDRESS, size, size, _LARGEST_PAGE)
    # Without this, older kernels would have a stack that can be executed, which SELinux refuses.
    stack = _SEGMENT.pack(_STACK, _READABLE | _WRITABLE, 0, 0, 0, 0, 0, 16)
    return header + load + stack + code


def config_maps(metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """Yields a ConfigMap for each file, which has it as its name; NAME of `metadata` becomes NAME-FILE."""
    for name, content in files.items():
        yield {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**metadata, "name": f"{metadata['name']}-{name}"},
            "binaryData": {name: base64.b64encode(content).decode()},
        }


def parts(program: bytes) -> list[bytes]:
    """Returns a program in pieces, each of which a ConfigMap holds."""
    return [program[begin : begin + _LARGEST_PART] for begin in range(0, len(program), _LARGEST_PART)]


def _amd64(instructions: _Instructions) -> bytes:
    """Returns the code; a jump has one byte more, for its distance from its own end."""
    code, labels, jumps = b"", {}, {}
    targets = _labels(instructions)
    for text, encoding in instructions:
        if text.endswith(":"):
            labels[text[:-1]] = len(code)
        code += bytes.fromhex(encoding)
        if (target := text.split()[-1]) in targets:
            jumps[len(code)] = target
            code += b"\0"
    patched = bytearray(code)
    for place, target in jumps.items():
        patched[place : place + 1] = (labels[target] - place - 1).to_bytes(1, "little", signed=True)
    return bytes(patched)


def _arm64(instructions: _Instructions) -> bytes:
    """Returns the code, whose instructions have four bytes each; a jump's distance is from its begin."""
    words: list[tuple[str, int]] = []
    labels = {}
    for text, encoding in instructions:
        if text.endswith(":"):
            labels[text[:-1]] = len(words)
        else:
            words.append((text, int(encoding, 16)))
    code = b""
    for place, (text, word) in enumerate(words):
        target = text.split()[-1]
        distance = 0
        if target in labels:
            bits, begin = _DISTANCES[text.split()[0]]
            distance = ((labels[target] - place) & ((1 << bits) - 1)) << begin
        code += (word | distance).to_bytes(4, "little")
    return code


def _labels(instructions: _Instructions) -> set[str]:
    return {text[:-1] for text, _ in instructions if text.endswith(":")}
