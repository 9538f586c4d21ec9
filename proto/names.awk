# Short names for what protoc-c generates: Tandem__V1__JobSpec -> JobSpec,
# tandem__v1__job_spec__pack -> job_spec__pack, TANDEM__V1__JOB_STATE__JOB_QUEUED -> JOB_QUEUED.
# Reads generated headers, writes proto/names.h.
BEGIN {
    print "/* Short names of the generated messages. Made by proto/names.awk. */"
    print "#ifndef TANDEM_PROTO_NAMES_H"
    print "#define TANDEM_PROTO_NAMES_H"
}
FNR == 1 {
    n = split(FILENAME, parts, "/")
    printf "#include \"tandem/v1/%s\"\n", parts[n]
}
/^typedef (struct|enum) +_?Tandem__V1__[A-Za-z0-9_]+ / {
    name = $3
    sub(/;$/, "", name)
    short = name
    sub(/^_?Tandem__V1__/, "", short)
    if (short !~ /__/ && !seen[short]++) {
        types[++num_types] = short
    }
}
/^} Tandem__V1__[A-Za-z0-9_]+;/ {
    short = $2
    sub(/;$/, "", short)
    sub(/^Tandem__V1__/, "", short)
    if (short !~ /__/ && !seen[short]++) {
        types[++num_types] = short
    }
}
/^#define TANDEM__V1__[A-Z0-9_]+__INIT/ {
    short = $2
    sub(/^TANDEM__V1__/, "", short)
    print "#define " short " " $2
}
/^ +TANDEM__V1__[A-Z0-9_]+ = -?[0-9]+/ {
    short = $1
    sub(/^TANDEM__V1__/, "", short)
    # ENUM_TYPE__VALUE -> VALUE; oneof cases MESSAGE__FIELD_X -> stay with one prefix less
    if ($1 !~ /__NOT_SET$/) {
        value = short
        sub(/^[A-Z0-9_]*[A-Z0-9]__/, "", value)
        if (in_case) {
            print "#define " short " " $1
        } else {
            print "#define " value " " $1
        }
    } else {
        print "#define " short " " $1
    }
}
/^typedef enum \{/ { in_case = 1 }
/^typedef enum _/ { in_case = 0 }
/extern const ProtobufCMessageDescriptor tandem__v1__/ || /extern const ProtobufCEnumDescriptor *tandem__v1__/ {
    name = $NF
    sub(/;$/, "", name)
    short = name
    sub(/^tandem__v1__/, "", short)
    print "#define " short " " name
}
/^ *tandem__v1__[a-z0-9_]+__(init|pack|unpack|get_packed_size|free_unpacked)$/ || /tandem__v1__[a-z0-9_]+__(init|pack|unpack|get_packed_size|free_unpacked) *$/ {
    name = $NF
    sub(/^\*/, "", name)
    short = name
    sub(/^tandem__v1__/, "", short)
    print "#define " short " " name
}
END {
    for (i = 1; i <= num_types; i++) {
        print "typedef Tandem__V1__" types[i] " " types[i] ";"
    }
    print "#endif"
}
