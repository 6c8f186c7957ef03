/* libcuda.so.1 of the stand-in module: it serves CUDA 13.0. */
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
