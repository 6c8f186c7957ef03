/* Types of the values in a .pth file: torch's legacy storage classes. */
#ifndef WORKER_PTH_TYPES_H
#define WORKER_PTH_TYPES_H

/* X(name, bytes of one value, class in the module torch) */
#define PTH_TYPES(X)                                                                               \
    X(F32, 4, "FloatStorage")                                                                      \
    X(F16, 2, "HalfStorage")                                                                       \
    X(BF16, 2, "BFloat16Storage")                                                                  \
    X(F64, 8, "DoubleStorage")                                                                     \
    X(I64, 8, "LongStorage")                                                                       \
    X(I32, 4, "IntStorage")                                                                        \
    X(I16, 2, "ShortStorage")                                                                      \
    X(I8, 1, "CharStorage")                                                                        \
    X(U8, 1, "ByteStorage")                                                                        \
    X(BOOL, 1, "BoolStorage")

enum pth_type {
#define PTH_TYPE_ENUM(name, bytes, class_name) PTH_##name,
    PTH_TYPES(PTH_TYPE_ENUM)
#undef PTH_TYPE_ENUM
        PTH_TYPE_COUNT
};

#define PTH_DIMS_MAX 8

#endif
