/* tandem-node: parent of one attempt's ranks on one host. Started by a launcher with a ticket on
 * descriptor 3; the rest comes from the controller.
 *
 * Threads:
 *   main     owns the gang (processes, links, segment), the node's state, and all signals
 *   reader   the stream to the controller: opens it, listens, posts commands to main   (attach.c)
 *   writer   one for each stream: sends what the outbox holds                          (attach.c)
 *   keeper   writes what is reported to the journal, reads it back            (outbox_disk.c)
 *   syncer   makes the journal durable                                        (outbox_disk.c)
 *   gRPC's   its own pollers
 * Shared between them: outbox and mailbox, each with its lock. Ranks are started by main, which
 * lives as long as the process: they ask the kernel to die with it. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime/node/node.h"
#include "runtime/node/ticket.h"

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("tandem-node %s\n", TANDEM_VERSION);
        return 0;
    }
    log_init("tandem-node");
    struct error err = {0};
    LaunchTicket *ticket;
    if (ticket_read(TICKET_FD, &ticket, &err) != 0) {
        log_error("%s (tandemd starts this program; it isn't meant to be run by hand)", err.text);
        return 2;
    }
    close(TICKET_FD);
    int code = node_run(ticket);
    launch_ticket__free_unpacked(ticket, NULL);
    return code;
}
