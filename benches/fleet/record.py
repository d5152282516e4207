"""record.py FIRST SECOND SECONDS: prints a recording of a node, for the generator of the fleet.

FIRST and SECOND are scrapes in OpenMetrics 1.0 of one exporter, this many seconds apart. Each sample gets both values. Cgroups of containers
become `@1`, `@2` and so on, functions `function_1` and so on, and their modules `module_1` and so on. Series that are not in both scrapes are left out.
"""

import re
import sys

CONTAINER = re.compile(r'"[^"]*/(?:cri-containerd|crio|docker)-[0-9a-f]{64}\.scope"')
CODE = re.compile(r'(function|module)="(?!other"|\[)[^"]*"')
SAMPLE = re.compile(r"(\w+(?:\{.*\})?) (\S+)$")


def values(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if found := SAMPLE.match(line):
                yield found[1], found[2]
            elif not line.startswith("#"):
                sys.exit(f"not a sample: {line}")


def main(first, second, seconds):
    after, names, code = dict(values(second)), {}, {"function": {}, "module": {}}

    def name(found):
        return f'"@{names.setdefault(found[0], len(names) + 1)}"'

    def of_code(found):
        numbers = code[found[1]]
        return f'{found[1]}="{found[1]}_{numbers.setdefault(found[0], len(numbers) + 1)}"'

    print(f"# SECONDS {seconds}")
    with open(first, encoding="utf-8") as file:
        for line in map(str.rstrip, file):
            found = SAMPLE.match(line)
            if not found:
                print(line)
            elif found[1] in after:
                series = CODE.sub(of_code, CONTAINER.sub(name, found[1]))
                if re.search(r'"[^"]*[,{}\\][^"]*"(?=[,}])', series):
                    sys.exit(f"a label value with a comma, a brace or a backslash: {series}")
                print(series, found[2], after[found[1]])


main(*sys.argv[1:])
