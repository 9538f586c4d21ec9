/* What tandem-nodes tell of the health of the GPUs that they hold: events of the job; a fault that
 * takes a device out of use drains it. Owner thread. */
#ifndef TANDEM_SERVER_DEVICE_EVENTS_H
#define TANDEM_SERVER_DEVICE_EVENTS_H

#include "server/controller.h"

/* One that isn't about a device of the job's present attempt is left out, as is what comes beyond
 * some hundred of an attempt: neither is the worker's to say. */
int device_events_take(struct controller *c, struct job *j, const DeviceEvent *e,
                       struct error *err);

#endif
