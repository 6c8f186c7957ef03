int nccl_like_version(void);

int nccl_like_version(void)
{
    return 2;
}
