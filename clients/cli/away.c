#include "clients/cli/away.h"

#include <stdio.h>

#include "base/clock.h"

/* SILENT_MS: who takes a connection and says nothing for so long isn't starting. */
enum { RETRY_MS = 500, ANSWERED_MS = 600000, NEVER_ANSWERED_MS = 5000, SILENT_MS = 30000 };

bool away_wait(struct cli *cli, const struct error *err)
{
    int64_t now = clock_mono_ms();
    if (!cli->channel) {
        return false; /* there is no server to wait for */
    }
    if (!cli->away_since_ms && !cli->answered) {
        if (now - cli->began_ms > SILENT_MS) {
            return false; /* the first try has had more time than that */
        }
        fprintf(stderr, "tandem: %s; trying again for %d s\n", err->text, NEVER_ANSWERED_MS / 1000);
    }
    cli->away_since_ms = cli->away_since_ms ? cli->away_since_ms : now;
    if (now - cli->away_since_ms > (cli->answered ? ANSWERED_MS : NEVER_ANSWERED_MS)) {
        return false;
    }
    rpc_channel_wait(cli->channel, RETRY_MS);
    return true;
}
