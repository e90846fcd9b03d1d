"""Convert a model's text to tool calls and back. The text is never executed.

- `syntax` parses a Python expression to an `ast` tree, with limits on length, depth and digits.
- `literals` reads the calls in such a tree, either strictly or as a lenient decoder does.
- `constant_folding` computes the arithmetic in such a tree, in bounded time and memory.
- `formats` finds calls in the formats that models are known to use.

All benchmarks share this code. The quirks of a benchmark's own decoder are in its folder."""
