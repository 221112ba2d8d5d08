"""Finds what two programs said and wrote differently, and tells it from what is expected."""

import array
import dataclasses
import difflib
import json


@dataclasses.dataclass
class Difference:
    case: str
    output: str  # "printed", "report.json", ...
    place: str  # the line, the path in a JSON, or the tensor
    before: object  # None if it is not there
    after: object

    def lines(self):
        for sign, value in [("-", self.before), ("+", self.after)]:
            if value is not None:
                yield f"    {sign} {self.output} {self.place}: {shortened(value)}"


def shortened(value, most=150):
    said = value if isinstance(value, str) else json.dumps(value)
    return said if len(said) <= most else said[:most] + " ..."


def in_texts(before, after):
    a, b = before.splitlines(), after.splitlines()
    for kind, i, end_i, j, end_j in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for at in range(max(end_i - i, end_j - j)):
            left, right = (s[k + at] if k + at < e else None for s, k, e in [(a, i, end_i), (b, j, end_j)])
            yield f"line {i + at + 1}", left, right


def in_values(before, after, path=""):
    if type(before) is not type(after):
        yield path, before, after
    elif isinstance(before, dict):
        for key in sorted({*before, *after}):
            yield from in_values(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(before, list) and len(before) == len(after):
        for i, pair in enumerate(zip(before, after)):
            yield from in_values(*pair, f"{path}[{i}]")
    elif before != after:
        yield path, before, after


def tensors(whole):
    """The header of a safetensors file, and each tensor's bytes."""
    end = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:end])
    extra = header.pop("__metadata__", {})
    slices = {name: slice(*(end + at for at in t["data_offsets"])) for name, t in header.items()}
    return header, extra, {name: whole[place] for name, place in slices.items()}


def numbers(dtype, data):
    if dtype == "BF16":
        data = b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2))
    return array.array("f", data)


def apart(dtype, a, b):
    """The largest difference of the numbers, as a fraction of the largest number."""
    if dtype not in {"F32", "BF16"} or len(a) != len(b):
        return "other bytes"
    a, b = numbers(dtype, a), numbers(dtype, b)
    return max(abs(x - y) for x, y in zip(a, b)) / (max(map(abs, [*a, *b])) or 1)


def in_files(before, after):
    """Differences of safetensors files, for a tensor by how far its numbers are apart."""
    if before == after:
        return
    (header, extra, data), (other_header, other_extra, other_data) = tensors(before), tensors(after)
    yield from in_values(extra, other_extra, "metadata")
    if sorted(header) == sorted(other_header) and list(header) != list(other_header):
        yield "order of tensors", list(header), list(other_header)
    for name in sorted({*header, *other_header}):
        one, other = (dict(h.get(name, {}), data_offsets=0) for h in (header, other_header))
        if one != other:
            yield name, one, other
        elif data[name] != other_data[name]:
            yield name, 0.0, apart(one["dtype"], data[name], other_data[name])


def between(case, before, after):
    """The differences of what two programs said and wrote: texts, JSON, or bytes of files, by name."""
    found = []
    for output in sorted({*before, *after}):
        a, b = before.get(output), after.get(output)
        if a == b:
            continue
        of_type = {str: in_texts, bytes: in_files}.get(type(a), in_values)
        places = of_type(a, b) if type(a) is type(b) else [("", a and "there", b and "there")]
        found += [Difference(case, output, *place) for place in places]
    return found
