/* A session of a real server, as server/record.h left it, run again in the simulator's place: the
 * same mail in the same steps, the same answers of clocks, launcher and probe. */
#ifndef TANDEM_TESTS_SIM_REPLAY_H
#define TANDEM_TESTS_SIM_REPLAY_H

#include "base/error.h"

struct replay_result {
    long steps;
    bool is_whole;      /* the server was stopped in good order */
    bool is_cut;        /* the record ended before the server did */
    long last_new;      /* events of the last step */
    char diverged[400]; /* where it went another way; "" = nowhere */
};

/* log: the record. db: a copy of the database of its start; it is changed. */
int replay_run(const char *log, const char *db, struct replay_result *out, struct error *err);

#endif
