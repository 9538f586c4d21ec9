/* What a job asks for that the runtime can't do yet, a line each, by field: "parallel.tensor:
 * tensor parallel is not built yet". Such a job can be planned and not be submitted. */
#ifndef TANDEM_PLAN_SPEC_UNBUILT_H
#define TANDEM_PLAN_SPEC_UNBUILT_H

#include <stddef.h>

struct spec_unbuilt {
    char **lines; /* owned */
    size_t num;
};

/* {0} is empty. */
void spec_unbuilt_add(struct spec_unbuilt *u, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void spec_unbuilt_free(struct spec_unbuilt *u);

#endif
