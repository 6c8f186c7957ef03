/* Only says which NCCL it is: VERSION, as ncclGetVersion tells it. For DDP_NCCL where NCCL's part is played by the stand-in GPU
 * (tests/standin/cuda/nccl.h). */
__attribute__((visibility("default"))) int ncclGetVersion(int *version);

int ncclGetVersion(int *version)
{
    *version = VERSION;
    return 0;
}
