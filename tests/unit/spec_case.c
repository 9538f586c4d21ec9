#include "spec_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/buf.h"
#include "proto/text.h"

JobSpec *spec_case_parse(const char *text)
{
    struct error err = {0};
    ProtobufCMessage *m = NULL;
    if (text_parse("job.yaml", text, strlen(text), &job_spec__descriptor, &m, &err)) {
        fail_msg("%s", err.text);
    }
    return (JobSpec *)m;
}

void spec_case_same(const void *a, const void *b)
{
    struct buf x = {0}, y = {0};
    text_to_yaml(&x, a);
    text_to_yaml(&y, b);
    assert_string_equal(x.data, y.data);
    buf_free(&x);
    buf_free(&y);
}
