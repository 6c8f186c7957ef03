/* What a test tells the stand-in libnccl; found with dlsym. */
#ifndef TESTS_STANDIN_NCCL_STANDIN_NCCL_H
#define TESTS_STANDIN_NCCL_STANDIN_NCCL_H

/* ncclGetVersion's answer from now on. */
void standin_nccl_version(int value);
/* An ncclResult_t that every communicator reports from now on; 0: none. */
void standin_nccl_async_error(int value);
/* Buffers that are registered now. */
int standin_nccl_registered(void);
/* Blocks of ncclMemAlloc that were not given back. */
int standin_nccl_allocated(void);

#endif
