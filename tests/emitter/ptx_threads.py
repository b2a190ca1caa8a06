"""Emitted PTX, run thread by thread without a card: integers, branches, memory; TMA's copies are the emulator's.

Threads run one after the other from one barrier of the block to the next, thread 0 first: a copy that it issues has arrived
when the others wait for it.
"""

import re
from collections import defaultdict

import numpy as np

import tilescope as ts

SMEM = 0x400  # shared address of the stage
BYTES = {"b8": 1, "u8": 1, "b16": 2, "b32": 4, "u32": 4, "b64": 8, "v2.b32": 8, "v4.b32": 16}
ARITHMETIC = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: a * b + c,
    "div": lambda a, b: a // b,
    "rem": lambda a, b: a % b,
    "shr": lambda a, b: a >> b,
    "shl": lambda a, b: a << b,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "mov": lambda a: a,
    "cvt": lambda a: a,
    "cvta": lambda a: a,
    "selp": lambda a, b, chosen: a if chosen else b,
    "setp.eq": lambda a, b: a == b,
    "setp.ne": lambda a, b: a != b,
    "setp.lt": lambda a, b: a < b,
    "setp.ge": lambda a, b: a >= b,
}


class Block:
    """A block that runs the text: its shared memory, what every thread did, and the global memory at these addresses."""

    def __init__(self, text, threads, parameters, memory, tensor_map=None):
        self.threads, self.parameters, self.memory, self.tensor_map = threads, parameters, memory, tensor_map
        self.smem = np.full(1 << 18, 0xEE, np.uint8)
        self.done = defaultdict(list)  # instruction: (thread, operands' values)
        self.matrices = defaultdict(dict)  # (warp, turn): lane: (address, registers)
        self.code, self.labels = [], {}
        body = re.sub(r"//[^\n]*", "", text.partition("\n{")[2])
        for statement in " ".join(body.split()).split(";"):
            line = re.sub(r"^[{} ]+(?=[\w.@])", "", statement.strip())
            while label := re.match(r"(\w+): ?", line):
                self.labels[label[1]] = len(self.code)
                line = line[label.end() :]
            if line and not line.startswith((".reg", "}")):
                self.code.append(line)

    def run(self):
        running = [self._run_thread(thread) for thread in range(self.threads)]
        while running:
            running = [thread for thread in running if next(thread, None) == "barrier"]

    def executed_by(self, instruction):
        """The threads that executed an instruction which starts with these words."""
        return {thread for name, calls in self.done.items() if name.startswith(instruction) for thread, _ in calls}

    def _run_thread(self, thread):
        registers = {"%tid.x": thread, "%ntid.x": self.threads, "smem": SMEM, "map": "map"}
        place, turns = 0, 0
        while place < len(self.code):
            line, place = self.code[place], place + 1
            line = self._guarded(line, registers)
            name, _, rest = line.partition(" ")
            operands = re.findall(r"\[[^\]]*\]|\{[^}]*\}|[^,\s]+", rest)
            if name == "ret":
                return
            if name == "":
                continue
            if name == "bar.sync":
                yield "barrier"
            elif name == "bra":
                place = self.labels[operands[0]]
            elif name.startswith("mbarrier.try_wait"):
                registers[operands[0]] = True
            elif name.startswith("ld.param"):
                registers[operands[0]] = self.parameters[operands[1].strip("[]")]
            elif (operation := self._operation(name)) is not None:
                values = [self._value(operand, registers) for operand in operands[1:]]
                registers[operands[0]] = ARITHMETIC[operation](*values)
            else:
                if name.startswith("stmatrix"):
                    turns += 1
                self._act(name, operands, registers, thread, turns)

    @staticmethod
    def _guarded(line, registers):
        """The instruction behind a guard such as @!%p; empty where the guard does not let it through."""
        guarded = re.fullmatch(r"@(!?)(%\w+) (.*)", line)
        if guarded is None:
            return line
        negation, predicate, instruction = guarded.groups()
        is_passed = bool(registers[predicate]) != bool(negation)
        return instruction if is_passed else ""

    @staticmethod
    def _operation(name):
        first, *further = name.split(".")
        return next(
            (known for known in (f"{first}.{further[0] if further else ''}", first) if known in ARITHMETIC), None
        )

    def _value(self, operand, registers):
        if operand in registers:
            return registers[operand]
        return int(operand, 0)

    def _listed(self, operand, registers):
        """The values in [a], [map, {x, y}] or {d0, d1}."""
        return [self._value(part, registers) for part in re.findall(r"[%\w.]+", operand)]

    def _act(self, name, operands, registers, thread, turn):
        if name.startswith(("ld.global", "ld.shared")):
            size = BYTES[name.split(".", 2)[2]]
            (address,) = self._listed(operands[1], registers)
            held = self._bytes(address, size, is_global="global" in name)
            targets = re.findall(r"%\w+", operands[0])
            for target, word in zip(targets, held.reshape(len(targets), -1), strict=True):
                registers[target] = int.from_bytes(word.tobytes(), "little")
            self.done[name].append((thread, (address, held.tobytes())))
            return
        read = operands[1:] if name.startswith(("ldmatrix", "wgmma.mma_async")) else operands  # these write the first
        values = [self._listed(operand, registers) for operand in read if operand.startswith(("[", "{"))]
        self.done[name].append((thread, values))
        if name.startswith("st.shared"):
            words, size = self._stored(operands[1], registers), BYTES[name.split(".", 2)[2]]
            each = size // len(words)
            data = b"".join((word & (1 << 8 * each) - 1).to_bytes(each, "little") for word in words)
            self._bytes(values[0][0], size, is_global=False)[:] = np.frombuffer(data, np.uint8)
        elif name.startswith("cp.async.cg"):
            inside = self._value(operands[3], registers)
            target = self._bytes(values[0][0], 16, is_global=False)
            target[:] = 0
            target[:inside] = self._bytes(values[1][0], inside, is_global=True)
        elif name.startswith("cp.async.bulk.tensor") and ".bulk_group" in name:
            (_, *coords), (address,) = values
            held = self.memory[self.tensor_map.address]
            ts.store(self.tensor_map, self.smem[address - SMEM :], held, coords, smem_address=address)
        elif name.startswith("cp.async.bulk.tensor"):
            (address,), (_, *coords), _ = values
            held = self.memory[self.tensor_map.address]
            ts.load(self.tensor_map, held, coords, smem=self.smem[address - SMEM :], smem_address=address)
        elif name.startswith("stmatrix"):
            lanes = self.matrices[thread // 32, turn]
            lanes[thread % 32] = values[0][0], values[1]
            if len(lanes) == 32:
                given = [lanes[lane] for lane in range(32)]
                addresses = np.array([address for address, _ in given])
                held = np.array([words for _, words in given], np.uint32)
                ts.stmatrix(held, self.smem, addresses, transpose=".trans" in name, smem_address=SMEM)

    def _stored(self, operand, registers):
        return [registers[name] for name in re.findall(r"%\w+", operand)]

    def _bytes(self, address, size, *, is_global):
        """A view of `size` bytes of one of the memories; an address outside all of them is an error."""
        if not is_global:
            assert SMEM <= address <= SMEM + len(self.smem) - size
            return self.smem[address - SMEM : address - SMEM + size]
        for start, held in self.memory.items():
            if start <= address <= start + len(held) - size:
                return held[address - start : address - start + size]
        raise AssertionError(f"{size} bytes at {address:#x}: no memory there")
