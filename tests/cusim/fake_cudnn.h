/* What a test sees of the cuDNN that computes nothing, and tells it. */
#ifndef TANDEM_TESTS_CUSIM_FAKE_CUDNN_H
#define TANDEM_TESTS_CUSIM_FAKE_CUDNN_H

#include <stdbool.h>
#include <stdint.h>

#include <cudnn.h>

#define FAKE_CUDNN_MAX 64
/* The first of three numbers in host memory: enum cudnn_tensor. */
#define FAKE_CUDNN_FIRST_NUMBER 10

struct fake_cudnn {
    bool refuse_plans, refuse_calls;
    int64_t workspace_bytes;
    int calls, handles, descriptors; /* calls so far; of the others what is there */
    cudaStream_t stream;             /* of the last call, and what it was given */
    int num;
    int64_t ids[FAKE_CUDNN_MAX];
    void *pointers[FAKE_CUDNN_MAX];
    float numbers[3];
    void *workspace;
};

/* In the library: by dlsym. */
extern struct fake_cudnn fake_cudnn;

#endif
