/* A set of layouts in which every three values of three factors that fit together do occur
 * together: small enough to run on every change, and by the same rule each time. */
#ifndef TANDEM_TESTS_PARALLEL_COVER_H
#define TANDEM_TESTS_PARALLEL_COVER_H

#include "layouts.h"

struct cover {
    struct layout *layouts; /* owned */
    int num;
};

void cover_build(struct cover *out);
void cover_free(struct cover *c);
/* Triples that a list of layouts has. */
int64_t cover_count(const struct layout *layouts, int num);

#endif
