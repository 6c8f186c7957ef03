// A C++ program that dies: native HOW.
#include <future>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

struct ShardError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

static int depth_first(int level)
{
    if (level == 0)
        throw ShardError("shard 12 of /data/train.bin: checksum is 0x51c2, not 0x93aa");
    return depth_first(level - 1) + 1;
}

int main(int argc, char **argv)
{
    std::string how = argc > 1 ? argv[1] : "";
    std::cout << "reader: " << how << std::endl;
    if (how == "throw")
        return depth_first(30);
    if (how == "async")
        return std::async(std::launch::async, depth_first, 3).get();
    if (how == "range")
        return std::vector<int>(4).at(9);
    if (how == "alloc")
        return static_cast<int>(std::vector<double>(1ULL << 58).size());
    if (how == "caught") {
        try {
            depth_first(4);
        } catch (const std::exception &error) {
            std::cerr << "fatal: " << error.what() << std::endl;
            return 2;
        }
    }
    return 0;
}
