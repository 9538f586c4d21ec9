/* Loading cuDNN. */
#if __has_include(<cudnn.h>)

#include "kernels/cuda/cudnn_graph.h"

#include <dlfcn.h>
#include <string.h>

int cudnn_api_load(struct cudnn_api *api, const char *path, struct error *err)
{
    memset(api, 0, sizeof *api);
    api->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!api->library) {
        return error_set(err, ERR_FAILED_PRECONDITION, "%s", dlerror());
    }
#define CUDNN_LOAD(name)                                                                           \
    {                                                                                              \
        void *found = dlsym(api->library, #name);                                                  \
        memcpy(&api->name, &found, sizeof found);                                                  \
        if (!found) {                                                                              \
            cudnn_api_unload(api);                                                                 \
            return error_set(err, ERR_FAILED_PRECONDITION, "%s lacks %s", path, #name);            \
        }                                                                                          \
    }
    CUDNN_FUNCTIONS(CUDNN_LOAD)
#undef CUDNN_LOAD
    return 0;
}

void cudnn_api_unload(struct cudnn_api *api)
{
    if (api->library) {
        dlclose(api->library);
    }
    memset(api, 0, sizeof *api);
}

#else

typedef int no_cudnn_here;

#endif
