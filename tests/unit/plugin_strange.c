/* Plug-ins as they shouldn't be, and one that is as it should: each is built with a KIND. */
#include "kernels/plugin.h"

#define KIND_RIGHT 0
#define KIND_OTHER_ABI 1
#define KIND_SMALLER 2
#define KIND_OLD_DRIVER 3
#define KIND_NO_DEVICE 4
#define KIND_NO_ENTRY 5
#define KIND_LARGER 6

static int count(int32_t *num, struct error *err)
{
    *num = KIND == KIND_NO_DEVICE ? 0 : 2;
    if (KIND == KIND_OLD_DRIVER && err) {
        *err = (struct error){ERR_FAILED_PRECONDITION, "the NVIDIA driver is too old: words"};
    }
    return KIND == KIND_OLD_DRIVER ? -1 : 0;
}

static int open_device(int32_t idx, struct device **out, struct error *err)
{
    *out = NULL;
    if (err) {
        *err = (struct error){ERR_UNAVAILABLE, "a device that a test has"};
    }
    return idx < 0 ? 0 : -1;
}

/* A later version's table may be longer than we know. */
static const struct {
    struct plugin known;
    void *later[4];
} table = {.known = {
               .abi = TANDEM_PLUGIN_ABI + (KIND == KIND_OTHER_ABI),
               .size = KIND == KIND_LARGER    ? sizeof table
                       : KIND == KIND_SMALLER ? sizeof table.known - 8
                                              : sizeof table.known,
               .name = "strange",
               .count = count,
               .open = open_device,
           }};

#if KIND == KIND_NO_ENTRY
const void *some_other_name(void);

const void *some_other_name(void)
{
    return &table;
}
#else
const struct plugin *tandem_plugin_entry(void);

const struct plugin *tandem_plugin_entry(void)
{
    return &table.known;
}
#endif
