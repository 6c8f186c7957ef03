int nccl_like_version(void);

int main(void)
{
    return nccl_like_version();
}
