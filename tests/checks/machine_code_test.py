"""scripts/machine_code.py reads machine code as it is, and tests/checks/streams.py says what is wrong.

machine_code.sass is what cuobjdump says of two kernels for sm_90. A loop of `together` loads three
words of 16 bytes, then adds them up; one of `in_turn` loads as many, each from where the last says:

    for (int i = threadIdx.x; i < count; i += 96) {
      const uint4 a = __ldcs(from + i), b = __ldcs(from + i + 32), c = __ldcs(from + i + 64);
      sum += (a.x ^ b.y ^ c.z) + (a.w ^ b.x ^ c.y) + (a.y ^ b.z ^ c.w) + (a.z ^ b.w ^ c.x);
    }

    for (int i = 0; i < count; ++i) {  // three times
      uint4 x = __ldcs(from + at);
      at = x.x ^ x.y ^ x.z ^ x.w;
"""

from streams import faults, machine_code
from tree import ROOT, verdict

USAGE = """ Function together:
  REG:20 STACK:0 SHARED:0 LOCAL:0
 Function in_turn:
  REG:18 STACK:24 SHARED:0 LOCAL:0
"""
SASS = (ROOT / "tests/checks/machine_code.sass").read_text()
KERNELS = {kernel.name: kernel for kernel in machine_code.kernels_of(SASS, USAGE)}
TOGETHER, IN_TURN = KERNELS["together"], KERNELS["in_turn"]

errors = []


def expect(what, found, wanted):
    if found != wanted:
        errors.append(f"{what} is {found!r}, not {wanted!r}")


expect("the loads under way of `together`", TOGETHER.loads(), 3)
expect("the loads under way of `in_turn`", IN_TURN.loads(), 1)
expect("the registers of `together`", TOGETHER.registers, 20)
expect("the passes of `together`", TOGETHER.passes(), [(3, 16, 48)])
expect("what 12 elements cost in `together`", machine_code.per_element(TOGETHER, [12]), (16 / 12, 4))

expect("what is wrong with `together`", list(faults(TOGETHER, 3, [12], 2.0)), [])
said = list(faults(TOGETHER, 4, [12], 1.0))
expect("the number of faults of `together` where more is required", len(said), 2)
expect("a word of the first", "3 wide loads" in said[0] and "batch is 4" in said[0], True)
expect("a word of the second", "1.3 instructions" in said[1], True)
said = list(faults(IN_TURN, 3, [12], None))
expect("the number of faults of `in_turn`", len(said), 2)
expect("a word of the first", "1 wide loads" in said[0], True)
expect("a word of the second", "24 bytes" in said[1], True)

rows = machine_code.table()
named = {source for source, *_ in rows}
expect("sources of the table that are not there",
       [source for source in named if not (machine_code.KERNELS / source).is_file()], [])  # fmt: skip
expect("kernels of the table with fewer than one load, or no elements, beside those on tensor cores",
       [row for row in rows if not row[0].startswith("tensor_") and (row[2] < 1 or not any(row[3]))], [])  # fmt: skip

verdict(errors, f"loads under way are counted, and {len(rows)} kernels have a number of them")
