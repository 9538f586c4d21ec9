/* A gang that can't start, whoever leaves: too many devices that suit it are out of use. */
#ifndef TANDEM_SERVER_OUT_OF_USE_H
#define TANDEM_SERVER_OUT_OF_USE_H

#include "plan/place.h"
#include "server/topology.h"

/* "4 of the 4 devices that suit it are out of use: box:0-3 (node box reports 0 of 4 devices)".
 * False: there would be a place on all that is in use, were it free; or nothing that suits is out
 * of use. out: NULL = who asks wants no words. */
bool out_of_use_words(const struct topology *t, const struct place_request *r, char *out,
                      size_t size);

#endif
