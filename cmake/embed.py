"""embed.py OUT.c NAME FILE: FILE as `const unsigned char NAME[]` and `const unsigned NAME_len`."""
import sys

out, name, path = sys.argv[1:]
data = open(path, "rb").read()
with open(out, "w") as f:
    f.write(f"extern const unsigned char {name}[];\nextern const unsigned {name}_len;\n")
    f.write(f"const unsigned char {name}[] = {{\n")
    for i in range(0, len(data), 20):
        f.write(",".join(str(b) for b in data[i : i + 20]) + ",\n")
    f.write(f"0}};\nconst unsigned {name}_len = {len(data)};\n")
