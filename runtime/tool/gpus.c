#include "runtime/tool/gpus.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "kernels/plugin.h"

/* A driver may hang; who asked waits no longer. */
#define ALARM_S 20

int gpus_main(int argc, char **argv)
{
    const struct plugin *plugin;
    struct error err;
    int32_t num;
    if (argc > 1) {
        fprintf(stderr, "tandem-tool: %s takes no arguments\n", argv[0]);
        return 2;
    }
    alarm(ALARM_S);
    if (plugin_cuda(&plugin, &err) != 0 || plugin->count(&num, &err) != 0) {
        printf("%s\n", err.text);
        return strncmp(err.text, "no NVIDIA driver", strlen("no NVIDIA driver")) == 0 ? 3 : 1;
    }
    printf("%d device%s for backend cuda, %s\n", num, num == 1 ? "" : "s", plugin->name);
    return 0;
}
