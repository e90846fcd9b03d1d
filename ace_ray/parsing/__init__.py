"""Model text to tool calls and back, within bounds; nothing a model says is executed.

- `syntax`: any Python expression as an `ast` tree, with bounds on length, depth and digits;
- `literals` and `fold`: the meaning of such a tree: literal calls, a lenient decoder's calls, or
  bounded arithmetic;
- `known`: the formats in which models write calls.

Benchmarks differ in how lenient they decode; what they share is here, their quirks are theirs.
"""
