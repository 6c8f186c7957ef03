/* The .json of a checkpoint: refused with its name, or what was read is written and read again as the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/target.h"
#include "worker/checkpoint/checkpoint.h"

static const char sha256[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

void fuzz_corpus(fuzz_add *add)
{
    struct checkpoint_state state = {.generation = 2, .epoch = 1, .step_in_epoch = 3, .step = 103};

    state.image_count = 60000;
    state.world = 4;
    state.batch = 100;
    state.accumulation_steps = 1;
    state.seed = UINT64_MAX;
    state.loss_scale = 65536;
    state.applied = 101;
    (void)strcpy(state.job_id, "77");
    (void)strcpy(state.arch, "resnet18");
    (void)strcpy(state.data, "idx");
    (void)strcpy(state.opt_level, "O2 bf16");
    (void)strcpy(state.optimizer, "sgd + lookahead (paper)");
    for (uint32_t i = 0; i < 600; i++) { /* more than there are broken inputs of messages */
        char *text;

        state.has_momentum = i % 2 == 0;
        state.early_has_best = i % 3 == 0;
        state.parts[0] = (struct sampler_part){2, 100, 1, 2};
        state.part_count = i % 7 == 1;
        state.early_best = i % 3 == 0 ? 0.25 : 0;
        text = checkpoint_state_print(&state, i % 5 == 0 ? UINT64_C(1) << 40 : 123456, sha256);
        FUZZ_CHECK(text != NULL);
        if (i % 2 == 1) /* changes of a text with a checksum go no further than that */
            (void)memcpy(strstr(text, ",\n\t\"state_sha256\""), "\n}", 3);
        add(text, strlen(text));
        free(text);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t byte_count)
{
    struct checkpoint_state state, again;
    uint64_t tensor_bytes = 0, bytes_again = 0;
    char sum[65] = "", sum_again[65] = "", *once, *twice;
    struct err err = {.text = ""};
    enum status status = checkpoint_state_parse(&state, &tensor_bytes, sum, "f.json",
                                                (const char *)data, byte_count, &err);

    if (status != STATUS_OK) {
        FUZZ_CHECK(status == STATUS_BAD_INPUT);
        FUZZ_CHECK(strstr(err.text, "f.json") != NULL);
        return 0;
    }
    once = checkpoint_state_print(&state, tensor_bytes, sum);
    FUZZ_CHECK(once != NULL);
    FUZZ_CHECK(checkpoint_state_parse(&again, &bytes_again, sum_again, "f.json", once, strlen(once),
                                      &err) == STATUS_OK);
    twice = checkpoint_state_print(&again, bytes_again, sum_again);
    FUZZ_CHECK(twice != NULL && strcmp(once, twice) == 0);
    FUZZ_CHECK(tensor_bytes == bytes_again && strcmp(sum, sum_again) == 0);
    if (state.arch[0] != '\0') /* as every run has it */
        FUZZ_CHECK(checkpoint_check(&state, &again, &err) == STATUS_OK);
    free(once);
    free(twice);
    return 0;
}
