/* A driver's library for the simulated plug-in: TANDEM_CUDA_DRIVER names it where there is none. */
int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}
